"""Nothing secret is ever in an answer, a log, the database, Redis, the admin or a metric.

Everybody repeats the secrets that they were given (`tests.acceptance.planted`); then everything
that an install says or keeps is searched for them.
"""

from __future__ import annotations

import re
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from html import unescape
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import psycopg
import pytest
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import User
from psycopg import sql

from tests.acceptance.planted import (
    ENVIRONMENT,
    LOG_ALL,
    MARKS,
    MODELS,
    Caller,
    add_models,
)
from tests.acceptance.stack import Gateway, Stack, eventually
from tests.acceptance.teams import insert, rows
from tests.raw_upstream import raw_upstream

pytestmark = pytest.mark.acceptance

PASSWORD = "a-password-for-the-admin"
STORIES = {
    "/admin/jobs/requestrecord/": "/admin/requests/",
    "/admin/jobs/batch/": "/admin/batches/",
}
"""Where the tables' entries have a page of the admin's own beside the table's."""
COMMANDS = [
    ("check", "--database", "default"),
    ("check_engine", "openai"),
    ("check_engine", "anthropic"),
    ("check_mcp_server", "program"),
    ("check_mcp_server", "web"),
    ("export_usage",),
]


class Aftermath(NamedTuple):
    """An install in which everything has happened."""

    stack: Stack
    gateway: Gateway
    caller: Caller


@pytest.fixture(scope="module")
def after(tmp_path_factory: pytest.TempPathFactory, web_server: str) -> Iterator[Aftermath]:
    """Let everything happen, and wait until nothing more does."""
    with (
        tempfile.TemporaryDirectory(prefix="tandem-secrets-") as folder,
        raw_upstream() as openai,
        raw_upstream() as anthropic,
        Stack(Path(folder)) as stack,
    ):
        upstreams = {"openai": openai, "anthropic": anthropic}
        add_models(stack, upstreams, web_server, tmp_path_factory.mktemp("secrets") / "key")
        password = make_password(PASSWORD, hasher="pbkdf2_sha256")
        insert(stack, User(username="root", password=password, is_staff=True, is_superuser=True))
        settings: dict[str, Any] = ENVIRONMENT | LOG_ALL
        gateway = stack.start_gateway(MCP_SERVERS_IN_REQUESTS="true", **settings)
        stack.start_worker(*MODELS, MCP_HOSTS_ALLOWED="127.0.0.1", **settings)
        stack.start_clerk(SETTLE_AFTER_S="2", **settings)
        for model in MODELS:
            gateway.wait_for_model(model)
        caller = Caller(stack, gateway, upstreams)
        try:
            caller.ask_upstreams()
            caller.run_tools()
            caller.bring_servers(web_server)
            caller.run_batch()
            eventually(lambda: _is_over(stack, gateway), "all requests are settled")
            caller.be_refused()
            yield Aftermath(stack, gateway, caller)
        finally:
            caller.let_go()


def _is_over(stack: Stack, gateway: Gateway) -> bool:
    if gateway.in_flight() or stack.redis.xlen(stack.keys.records):
        return False
    query = "SELECT count(*), count(settled_at) FROM jobs_requestrecord"
    ((count, settled),) = rows(stack, query)
    return bool(count == settled > 0)


def leaks(after: Aftermath, place: str, data: bytes | str) -> list[str]:
    """Return what of the secrets is in some data."""
    text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    marks = MARKS | {"client": after.caller.member.key}
    return [f"{name} in {place}: {text[:200]}" for name, mark in marks.items() if mark in text]


def test_no_secret_is_in_an_answer(after: Aftermath) -> None:
    heard = after.caller.heard
    assert len(heard) > after.caller.asked
    assert b"[secret]" in b"".join(heard)
    assert [leak for data in heard for leak in leaks(after, "an answer", data)] == []


def test_no_secret_is_in_a_log_or_another_file(after: Aftermath) -> None:
    layout = after.stack.layout
    # The database's is read through the database; Redis keeps what it was told until it tidies up.
    kept = [path for path in layout.data_dir.rglob("*") if path.is_file()]
    apart = (layout.postgres, layout.valkey)
    files = [path for path in kept if not any(folder in path.parents for folder in apart)]
    logs = [path for path in files if layout.logs in path.parents]
    assert len(logs) >= 5
    assert any("[secret]" in path.read_text(errors="replace") for path in logs)
    assert [leak for path in files for leak in leaks(after, path.name, path.read_bytes())] == []


def test_no_secret_is_in_the_database(after: Aftermath) -> None:
    found, looked_at = [], 0
    for table, value in every_value(after.stack):
        looked_at += 1
        found += leaks(after, table, value)
    assert looked_at > 1000
    assert found == []


def test_no_secret_is_in_redis(after: Aftermath) -> None:
    def found() -> list[str]:
        return [leak for key, data in every_key(after.stack) for leak in leaks(after, key, data)]

    assert any(True for _ in every_key(after.stack))
    # The gateway's stream of events is trimmed a moment later.
    eventually(lambda: not found(), "Redis has forgotten all secrets")


def test_no_secret_is_in_the_admin(after: Aftermath) -> None:
    pages = dict(every_page(after.gateway))
    assert "/admin/inference/upstream/openai/change/" in pages
    assert "/admin/inference/mcpserver/web/test/" in pages
    for path in ("/admin/jobs/requestrecord/0", *(f"{story}0" for story in STORIES.values())):
        assert any(page.startswith(path) for page in pages)
    found = [leak for path, page in pages.items() for leak in leaks(after, path, unescape(page))]
    assert found == []


def test_no_secret_is_in_metrics_health_or_the_control_api(after: Aftermath) -> None:
    http = after.caller.http
    activity = http.get("/control/v1/activity", params={"page_size": 100}).json()["items"]
    assert activity
    details = [f"activity/{each['id']}" for each in activity]
    control = ["activity", "usage/summary", "billing/transactions", "auth/api-keys", *details]
    paths = ["/metrics", "/readyz", "/v1/models", *(f"/control/v1/{path}" for path in control)]
    answers = {path: http.get(path) for path in paths}
    assert [path for path, answer in answers.items() if answer.status_code != 200] == []
    found = [leak for path, answer in answers.items() for leak in leaks(after, path, answer.text)]
    assert found == []


def test_no_secret_is_in_what_commands_print(after: Aftermath) -> None:
    def run(command: tuple[str, ...]) -> str:
        return after.stack.say(*command, **ENVIRONMENT, **LOG_ALL)

    with ThreadPoolExecutor(2) as threads:
        printed = dict(zip(COMMANDS, threads.map(run, COMMANDS), strict=True))
    assert all(text for text in printed.values())
    found = [leak for command, text in printed.items() for leak in leaks(after, str(command), text)]
    assert found == []


def every_value(stack: Stack) -> Iterator[tuple[str, bytes | str]]:
    """Yield all that the tables hold, and what was compressed as it was before, too."""
    with psycopg.connect(stack.layout.database_url) as connection:
        names = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
        ).fetchall()
        for (name,) in names:
            query = sql.SQL("SELECT * FROM {}").format(sql.Identifier(name))
            for row in connection.execute(query):
                for value in row:
                    yield from ((name, each) for each in _readings(value))


def _readings(value: Any) -> Iterable[bytes | str]:
    if not isinstance(value, bytes):
        yield str(value)
        return
    yield value
    with suppress(zlib.error):
        yield zlib.decompress(value)


def every_key(stack: Stack) -> Iterator[tuple[str, str]]:
    """Yield all that Redis holds."""
    redis: Any = stack.redis
    readers = {
        b"string": redis.get,
        b"hash": redis.hgetall,
        b"set": redis.smembers,
        b"list": lambda key: redis.lrange(key, 0, -1),
        b"zset": lambda key: redis.zrange(key, 0, -1),
        b"stream": redis.xrange,
    }
    for key in redis.scan_iter():
        # It may be gone by now.
        if reader := readers.get(redis.type(key)):
            yield key.decode(), f"{key!r} {reader(key)!r}"


def every_page(gateway: Gateway) -> Iterator[tuple[str, str]]:
    """Yield the admin's lists, each entry's page and history, what it has for operators beside
    them, and what tests of connections say."""
    with httpx.Client(
        base_url=gateway.url, follow_redirects=True, timeout=60, trust_env=False
    ) as http:
        http.get("/admin/login/")
        form = {"username": "root", "password": PASSWORD, "next": "/admin/"}
        index = http.post("/admin/login/", data=_signed(http, form))
        assert "Log out" in index.text
        yield "/admin/engines/", http.get("/admin/engines/").text
        for path in sorted(set(re.findall(r'href="(/admin/\w+/\w+/)"', index.text))):
            listed = http.get(path).text
            yield path, listed
            entry = rf'href="({path}[^"?]+/)change/'
            for base in sorted(set(re.findall(entry, listed))):
                yield f"{base}change/", http.get(f"{base}change/").text
                yield f"{base}history/", http.get(f"{base}history/").text
                if path in STORIES:
                    story = base.replace(path, STORIES[path])
                    yield story, http.get(story).text
                if path.startswith("/admin/inference/") and "/model/" not in path:
                    tested = http.post(f"{base}test/", data=_signed(http, {}))
                    assert tested.status_code == 200
                    yield f"{base}test/", tested.text


def _signed(http: httpx.Client, form: dict[str, str]) -> dict[str, str]:
    return form | {"csrfmiddlewaretoken": http.cookies["csrftoken"]}
