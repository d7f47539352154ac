"""Bodies that are files: on the disk whichever way they come, and closed in the end."""

from __future__ import annotations

import io
from functools import partial
from typing import IO, Any
from unittest.mock import MagicMock

import pytest

from gateway.http.daphne import StrictRequest
from gateway.http.request import ApiRequest
from gateway.http.upload import UploadConsumer
from tests.unit.gateway.http.test_consumer import SERVICES, Connection, open_connection

BODIES: list[IO[bytes]] = []


class Count(UploadConsumer):
    """Answers with the body's size, and keeps the file to look at it later."""

    methods = ("POST",)
    public = True

    async def handle(self, request: ApiRequest) -> None:
        BODIES.append(self.upload)
        assert self.upload.tell() == 0
        await self.respond_json(b'"%b"' % self.upload.read())


@pytest.fixture(autouse=True)
def _none_open() -> None:
    BODIES.clear()


async def test_a_body_that_comes_in_pieces_is_a_file() -> None:
    async with open_connection(Count) as connection:
        connection.say(b"a", more=True)
        connection.say(b"b", more=True)
        connection.say(b"c")
    assert connection.body == b'"abc"'
    (body,) = BODIES
    assert body.closed


async def test_a_body_beyond_the_limit_is_counted_and_not_kept() -> None:
    async with open_connection(Count) as connection:
        for _ in range(10):
            connection.say(b"12345", more=True)
        connection.say(b"")
    assert connection.status == 413
    assert "50 bytes, more than the maximum of 10" in connection.error["message"]
    assert BODIES == []


async def test_who_leaves_early_leaves_no_file_behind() -> None:
    async with open_connection(Count) as connection:
        connection.say(b"a", more=True)
        connection.leave()
    assert connection.sent == []


async def reply(request: StrictRequest, connection: Connection, message: dict[str, Any]) -> None:
    await connection.send(message)


async def test_the_file_that_the_server_has_is_handed_over() -> None:
    request = StrictRequest(MagicMock())
    request._upload = io.BytesIO(b"12345")
    body = request._upload
    connection = Connection()
    connection.say(b"")
    scope = {"type": "http", "method": "POST", "path": "/x", "query_string": b"", "headers": []}
    send = partial(reply, request, connection)
    await Count(SERVICES)(scope, connection.inbox.get, send)
    assert connection.body == b'"12345"'
    assert [body] == BODIES
    assert body.closed
    assert request.hand_over() is None
