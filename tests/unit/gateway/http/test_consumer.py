"""The base of every API consumer, driven as Daphne drives it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.http.consumer import ApiConsumer, NotFound
from gateway.http.request import ApiRequest
from gateway.keys import Principal
from gateway.services import Services
from inference.errors import ErrorCode, TandemError
from tests.conftest import Eventually

PRINCIPAL = Principal(key_id="1", key_name="k", team_id=1, team_name="t")


class KeyRing:
    """Knows one key."""

    async def resolve(self, key: str) -> Principal | None:
        return PRINCIPAL if key == "good" else None


SERVICES = cast(
    Services,
    SimpleNamespace(
        config=SimpleNamespace(MAX_BODY_BYTES=10), directory=SimpleNamespace(keys=KeyRing())
    ),
)


class Echo(ApiConsumer):
    """Answers with the body."""

    methods = ("POST",)

    async def handle(self, request: ApiRequest) -> None:
        await self.respond_json(b'"%b"' % request.body)


class PublicEcho(Echo):
    public = True


class Broken(PublicEcho):
    async def handle(self, request: ApiRequest) -> None:
        raise ZeroDivisionError("a secret")


class BreaksLate(PublicEcho):
    def encode_failure(self, error: TandemError) -> bytes:
        return b"event: " + error.code.encode()

    async def handle(self, request: ApiRequest) -> None:
        await self.start(200, [])
        await self.write(b"one ")
        raise TandemError(ErrorCode.TIMEOUT, "late")


class Endless(PublicEcho):
    ended = False

    async def handle(self, request: ApiRequest) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            Endless.ended = True


class Connection:
    """One request's connection, as the application sees it."""

    def __init__(self) -> None:
        self.inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.sent: list[dict[str, Any]] = []

    async def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)
        if message["type"] == "http.response.body" and not message["more_body"]:
            self.leave()

    def say(self, body: bytes, *, more: bool = False) -> None:
        self.inbox.put_nowait({"type": "http.request", "body": body, "more_body": more})

    def leave(self) -> None:
        self.inbox.put_nowait({"type": "http.disconnect"})

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])

    @property
    def body(self) -> bytes:
        return b"".join(message["body"] for message in self.sent[1:])

    @property
    def error(self) -> dict[str, str]:
        return cast("dict[str, str]", json.loads(self.body)["error"])


@asynccontextmanager
async def open_connection(
    consumer: type[ApiConsumer], method: str = "POST", headers: dict[str, str] | None = None
) -> AsyncIterator[Connection]:
    """Start a consumer, and wait for its end."""
    connection = Connection()
    scope = {
        "type": "http",
        "method": method,
        "path": "/x",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in (headers or {}).items()],
    }
    application = consumer(SERVICES)(scope, connection.inbox.get, connection.send)
    task = asyncio.create_task(application)
    yield connection
    async with asyncio.timeout(20):
        await task


async def ask(
    consumer: type[ApiConsumer],
    *,
    method: str = "POST",
    body: bytes = b"hi",
    headers: dict[str, str] | None = None,
) -> Connection:
    async with open_connection(consumer, method, headers) as connection:
        connection.say(body)
    return connection


async def test_it_answers_once_the_whole_body_is_there() -> None:
    async with open_connection(PublicEcho) as connection:
        connection.say(b"a", more=True)
        connection.say(b"b", more=True)
        connection.say(b"c")
    assert connection.status == 200
    assert connection.body == b'"abc"'
    assert connection.headers[b"content-length"] == b"5"
    assert connection.headers[b"request-id"].startswith(b"req_")


@pytest.mark.parametrize(
    "headers", [{"x-api-key": "good"}, {"authorization": "Bearer good"}], ids=str
)
async def test_a_key_opens(headers: dict[str, str]) -> None:
    assert (await ask(Echo, headers=headers)).status == 200


@pytest.mark.parametrize(
    ("headers", "message"), [({}, "no API key"), ({"x-api-key": "bad"}, "invalid x-api-key")]
)
async def test_without_a_good_key_it_refuses(headers: dict[str, str], message: str) -> None:
    connection = await ask(Echo, headers=headers)
    assert connection.status == 401
    assert message in connection.error["message"]


async def test_a_method_that_is_not_allowed_is_refused_before_the_key() -> None:
    connection = await ask(Echo, method="GET")
    assert connection.status == 405
    assert connection.headers[b"allow"] == b"POST"


async def test_a_body_beyond_the_limit_is_counted_and_not_kept() -> None:
    async with open_connection(PublicEcho) as connection:
        for _ in range(10):
            connection.say(b"12345", more=True)
        connection.say(b"")
    assert connection.status == 413
    assert "50 bytes, more than the maximum of 10" in connection.error["message"]


async def test_a_body_of_just_the_limit_is_taken() -> None:
    assert (await ask(PublicEcho, body=b"1234567890")).status == 200


class Quoting(PublicEcho):
    async def handle(self, request: ApiRequest) -> None:
        raise TandemError(ErrorCode.NOT_FOUND, "there is no sk-tandem-abc123")


async def test_a_key_that_a_caller_pastes_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with open_connection(Quoting) as answer:
        answer.say(b"")
    assert b"sk-tandem-abc123" in answer.body
    assert "there is no" in caplog.text
    assert "abc123" not in caplog.text


async def test_a_bug_is_logged_and_not_told(caplog: pytest.LogCaptureFixture) -> None:
    connection = await ask(Broken)
    assert connection.status == 500
    assert b"secret" not in connection.body
    assert "a secret" in caplog.text


async def test_an_error_after_the_first_byte_ends_the_body_in_the_dialects_way() -> None:
    connection = await ask(BreaksLate)
    assert connection.status == 200
    assert connection.body == b"one event: timeout"
    assert [message["type"] for message in connection.sent].count("http.response.start") == 1


async def test_a_client_that_leaves_cancels_the_answer_at_once(eventually: Eventually) -> None:
    Endless.ended = False
    async with open_connection(Endless) as connection:
        connection.say(b"")
        await asyncio.sleep(0)
        connection.leave()
        await eventually(lambda: Endless.ended)
    assert connection.sent == []


async def test_a_client_that_leaves_before_its_body_is_complete_leaves_nothing() -> None:
    async with open_connection(PublicEcho) as connection:
        connection.say(b"a", more=True)
        connection.leave()
    assert connection.sent == []


async def test_head_gets_the_headers_alone() -> None:
    class Page(ApiConsumer):
        public = True

        async def handle(self, request: ApiRequest) -> None:
            await self.respond_json(b"12345")

    connection = await ask(Page, method="HEAD", body=b"")
    assert connection.headers[b"content-length"] == b"5"
    assert connection.body == b""


@pytest.mark.parametrize("method", ["DELETE", "BREW"])
async def test_what_is_not_there_is_named_whatever_the_method(method: str) -> None:
    connection = await ask(NotFound, method=method)
    assert connection.status == 404
    assert f"{method} /x" in connection.error["message"]
