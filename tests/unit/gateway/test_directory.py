"""The snapshots of keys and models that the hot path looks into."""

from __future__ import annotations

import asyncio
import subprocess
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TypeVar
from unittest.mock import Mock

import pytest
import redis
from django.conf import settings
from django.db import OperationalError, connection

from gateway import directory as directory_module
from gateway.directory import Directory, KeyDirectory, Snapshot
from gateway.keys import Principal, digest, mint, revoke
from gateway.models import ApiKey
from gateway.supervise import valkey
from gateway.supervise.embedded import wait_for_redis
from gateway.supervise.layout import Layout
from inference.errors import ErrorCode, TandemError
from inference.models import Model
from inference.transport.nudge import Topic, nudge
from tests.conftest import Eventually

T = TypeVar("T")

NEVER_S = 3600.0
with_database = pytest.mark.django_db(transaction=True)


async def in_thread(call: Callable[[], T]) -> T:
    """Use the database as another process would: beside the loop, leaving no connection open."""

    def run() -> T:
        try:
            return call()
        finally:
            connection.close()

    return await asyncio.to_thread(run)


@asynccontextmanager
async def running(
    redis_url: str | None = None, refresh_s: float = NEVER_S
) -> AsyncGenerator[Directory]:
    directory = Directory(
        redis_url or settings.REDIS_URL, settings.TANDEM.REDIS_PREFIX, refresh_s=refresh_s
    )
    await directory.start()
    try:
        yield directory
    finally:
        await directory.stop()


def listeners(redis_url: str) -> int:
    with redis.Redis.from_url(redis_url) as client:
        ((_, count),) = client.pubsub_numsub(f"{settings.TANDEM.REDIS_PREFIX}:nudges")
    return int(count)


def add_model(name: str) -> None:
    Model.objects.create(id=name, context_tokens=1, backend=Model.Backend.SCRIPTED)


class Loader:
    """Stands in for a query: counts its calls, and may wait or fail."""

    def __init__(self) -> None:
        self.calls = 0
        self.error: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.result: dict[bytes, Principal] = {}

    def __call__(self) -> dict[bytes, Principal]:
        self.calls += 1
        result = self.result
        assert self.gate.wait(20)
        if self.error:
            raise self.error
        return result


def principal(name: str) -> Principal:
    return Principal(key_id="1", key_name=name, team_id=1, team_name="default")


async def test_callers_at_the_same_time_share_one_load(eventually: Eventually) -> None:
    loader = Loader()
    loader.gate.clear()
    snapshot = Snapshot("keys", loader)
    first = asyncio.create_task(snapshot.refresh())
    await eventually(lambda: loader.calls == 1)
    others = [asyncio.create_task(snapshot.refresh(max_age_s=60)) for _ in range(50)]
    await asyncio.sleep(0)
    loader.gate.set()
    await asyncio.gather(first, *others)
    assert loader.calls == 1


async def test_a_change_during_a_load_is_not_missed(eventually: Eventually) -> None:
    loader = Loader()
    loader.gate.clear()
    snapshot = Snapshot("keys", loader)
    early = asyncio.create_task(snapshot.refresh())
    await eventually(lambda: loader.calls == 1)
    loader.result = {b"new": principal("new")}
    late = [asyncio.create_task(snapshot.refresh()) for _ in range(50)]
    await asyncio.sleep(0)
    loader.gate.set()
    await asyncio.gather(early, *late)
    assert loader.calls == 2
    assert b"new" in snapshot.value


async def test_a_caller_that_goes_away_leaves_the_load_running(eventually: Eventually) -> None:
    loader = Loader()
    loader.gate.clear()
    snapshot = Snapshot("keys", loader)
    caller = asyncio.create_task(snapshot.refresh())
    await eventually(lambda: loader.calls == 1)
    caller.cancel()
    loader.gate.set()
    await eventually(lambda: snapshot.loaded_at_s is not None)
    assert loader.calls == 1


@pytest.mark.parametrize("error", [OperationalError("gone"), TypeError("a bad row")])
async def test_a_failed_load_keeps_the_last_copy_and_is_logged(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    loader = Loader()
    loader.result = {b"old": principal("old")}
    snapshot = Snapshot("keys", loader)
    await snapshot.refresh()
    loaded_at_s = snapshot.loaded_at_s
    loader.error = error
    await snapshot.refresh()
    assert b"old" in snapshot.value
    assert snapshot.loaded_at_s == loaded_at_s
    assert "cannot read the keys, keeping the last" in caplog.text


async def test_no_key_is_called_unknown_before_the_keys_were_loaded() -> None:
    loader = Loader()
    loader.error = OperationalError("gone")
    snapshot = Snapshot("keys", loader)
    await snapshot.refresh()
    with pytest.raises(TandemError, match="not been able to read its keys") as caught:
        await KeyDirectory(snapshot).resolve("sk-tandem-x")
    assert caught.value.code is ErrorCode.UNAVAILABLE


async def test_a_flood_of_unknown_keys_reads_the_database_once_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 100.0
    monkeypatch.setattr("gateway.directory.time.monotonic", lambda: now_s)
    loader = Loader()
    snapshot = Snapshot("keys", loader)
    keys = KeyDirectory(snapshot)
    await snapshot.refresh()
    now_s += 0.9
    assert [await keys.resolve(f"a{n}") for n in range(50)] == [None] * 50
    assert loader.calls == 1
    now_s += 0.2
    assert await asyncio.gather(*(keys.resolve(f"b{n}") for n in range(50))) == [None] * 50
    assert loader.calls == 2


class Clock:
    """The monotonic clock, which goes on only by sleeping and by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        self._sleep = asyncio.sleep
        monkeypatch.setattr("gateway.directory.time.monotonic", lambda: self.now_s)
        monkeypatch.setattr("gateway.directory.asyncio.sleep", self.sleep)

    async def sleep(self, delay_s: float) -> None:
        until_s = self.now_s + delay_s
        await self._sleep(0)
        self.now_s = max(self.now_s, until_s)


def new_key(number: int) -> str:
    return f"sk-tandem-{number:043}"


async def test_a_key_made_since_the_last_load_works_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    loader = Loader()
    snapshot = Snapshot("keys", loader)
    await snapshot.refresh()
    clock.now_s += 0.9
    loader.result = {digest(new_key(1)): principal("laptop")}
    assert await KeyDirectory(snapshot).resolve(new_key(1)) == principal("laptop")
    assert (loader.calls, clock.now_s) == (2, 101.0)


async def test_a_flood_of_what_may_be_new_keys_reads_the_database_once_a_second_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    loader = Loader()
    snapshot = Snapshot("keys", loader)
    keys = KeyDirectory(snapshot)
    await snapshot.refresh()
    clock.now_s += 0.9
    assert await asyncio.gather(*(keys.resolve(new_key(n)) for n in range(50))) == [None] * 50
    assert (loader.calls, clock.now_s) == (2, 101.0)
    clock.now_s += 0.1
    assert await keys.resolve(new_key(51)) is None
    assert (loader.calls, clock.now_s) == (3, 102.0)


async def test_a_known_key_never_touches_the_database() -> None:
    loader = Loader()
    loader.result = {digest("known"): principal("laptop")}
    snapshot = Snapshot("keys", loader)
    await snapshot.refresh()
    assert await KeyDirectory(snapshot).resolve("known") == principal("laptop")
    assert loader.calls == 1


@with_database
async def test_it_knows_the_keys_and_models_of_the_database() -> None:
    plaintext = await in_thread(lambda: mint("laptop", team="blue"))
    await in_thread(lambda: add_model("tiny"))
    async with running() as directory:
        found = directory.keys.find(plaintext)
        assert found is not None
        assert (found.key_name, found.team_name) == ("laptop", "blue")
        assert directory.keys.find("sk-tandem-nobody") is None
        assert directory.catalogue.find("TINY") is not None
        assert directory.loaded_at_s is not None


@with_database
async def test_a_nudge_makes_new_and_revoked_keys_known(eventually: Eventually) -> None:
    async with running() as directory:
        await eventually(lambda: listeners(settings.REDIS_URL) == 1)
        plaintext = await in_thread(lambda: mint("laptop"))
        await eventually(lambda: directory.keys.find(plaintext) is not None)
        await in_thread(lambda: revoke(ApiKey.objects.all()))
        await eventually(lambda: directory.keys.find(plaintext) is None)


@with_database
async def test_a_nudge_makes_a_new_model_known(eventually: Eventually) -> None:
    async with running() as directory:
        await eventually(lambda: listeners(settings.REDIS_URL) == 1)
        await in_thread(lambda: add_model("tiny"))
        nudge(settings.REDIS_URL, settings.TANDEM.REDIS_PREFIX, Topic.CATALOGUE)
        await eventually(lambda: directory.catalogue.find("tiny") is not None)


@with_database
async def test_changes_become_known_without_redis(eventually: Eventually, tmp_path: Path) -> None:
    async with running(redis_url=f"unix://{tmp_path}/nobody.sock", refresh_s=0.05) as directory:
        await in_thread(lambda: add_model("tiny"))
        await eventually(lambda: directory.catalogue.find("tiny") is not None)


@with_database
async def test_a_key_minted_a_moment_ago_works_at_once_without_redis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory_module, "RESOLVE_INTERVAL_S", 0.0)
    async with running(redis_url=f"unix://{tmp_path}/nobody.sock") as directory:
        plaintext = await in_thread(lambda: mint("laptop"))
        assert directory.keys.find(plaintext) is None
        assert await directory.keys.resolve(plaintext) is not None


@contextmanager
def valkey_server(layout: Layout) -> Generator[None]:
    server = subprocess.Popen(valkey.command(layout), stdout=subprocess.DEVNULL)
    try:
        wait_for_redis(layout.redis_url, timeout_s=20)
        yield
    finally:
        server.kill()
        server.wait()


@with_database
async def test_nudges_work_again_after_redis_was_away(
    eventually: Eventually, tmp_path: Path
) -> None:
    layout = Layout(tmp_path)
    layout.create()
    valkey.prepare(layout)
    url, prefix = layout.redis_url, settings.TANDEM.REDIS_PREFIX
    async with running(redis_url=url) as directory:
        for name in ("first", "second"):
            with valkey_server(layout):
                await eventually(lambda: listeners(url) == 1)
                await in_thread(lambda name=name: add_model(name))  # type: ignore[misc]
                nudge(url, prefix, Topic.CATALOGUE)
                await eventually(lambda name=name: directory.catalogue.find(name) is not None)  # type: ignore[misc]


@with_database
async def test_what_changed_while_redis_was_away_is_known_when_it_is_back(
    eventually: Eventually, tmp_path: Path
) -> None:
    layout = Layout(tmp_path)
    layout.create()
    valkey.prepare(layout)
    async with running(redis_url=layout.redis_url) as directory:
        await in_thread(lambda: add_model("tiny"))
        with valkey_server(layout):
            await eventually(lambda: directory.catalogue.find("tiny") is not None)


@with_database
async def test_the_database_answers_a_ping() -> None:
    assert await Directory(settings.REDIS_URL, "x").ping_database()


async def test_a_database_that_fails_does_not_answer_a_ping(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        directory_module, "connection", Mock(**{"cursor.side_effect": OperationalError("gone")})
    )
    assert not await Directory(settings.REDIS_URL, "x").ping_database()


async def test_pings_of_a_database_that_hangs_share_one_and_give_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loader = Loader()
    loader.gate.clear()
    monkeypatch.setattr(directory_module, "_answers", loader)
    monkeypatch.setattr(directory_module, "PING_TIMEOUT_S", 0.05)
    directory = Directory(settings.REDIS_URL, "x")
    try:
        assert [await directory.ping_database() for _ in range(3)] == [False] * 3
        assert loader.calls == 1
    finally:
        loader.gate.set()


async def test_stopping_twice_is_harmless() -> None:
    directory = Directory(settings.REDIS_URL, "x")
    await directory.stop()
    await directory.stop()
