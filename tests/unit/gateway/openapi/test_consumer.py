"""`GET /openapi.json`, driven as Daphne drives it."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.openapi.consumer import OpenApi
from gateway.openapi.document import build
from gateway.services import Services

SERVICES = cast(Services, SimpleNamespace(config=SimpleNamespace(MAX_BODY_BYTES=10)))


class Answer:
    """The answer to one request without a key."""

    def __init__(self, sent: list[dict[str, Any]]) -> None:
        self.status: int = sent[0]["status"]
        self.headers: dict[bytes, bytes] = dict(sent[0]["headers"])
        self.body = b"".join(message["body"] for message in sent[1:])


async def ask(*headers: tuple[bytes, bytes], method: str = "GET") -> Answer:
    sent: list[dict[str, Any]] = []
    incoming = iter([{"type": "http.request", "body": b""}])
    consumer = OpenApi(SERVICES)

    async def receive() -> dict[str, Any]:
        if (message := next(incoming, None)) is not None:
            return message
        # As a client that waits for the whole answer before it leaves.
        assert consumer._task is not None
        await consumer._task
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": "/openapi.json", "headers": list(headers)}
    await consumer(scope, receive, send)
    return Answer(sent)


async def test_it_answers_with_the_document_and_its_etag() -> None:
    answer = await ask()
    assert answer.status == 200
    assert answer.headers[b"content-type"] == b"application/json"
    assert answer.headers[b"etag"].startswith(b'"')
    assert json.loads(answer.body) == build()


async def test_it_answers_a_head_without_the_document() -> None:
    answer = await ask(method="HEAD")
    assert (answer.status, answer.body) == (200, b"")
    assert int(answer.headers[b"content-length"]) > 1000


@pytest.mark.parametrize("form", [b"%b", b"W/%b", b'"other", %b', b"*"])
async def test_it_sends_nothing_to_who_has_the_document(form: bytes) -> None:
    etag = (await ask()).headers[b"etag"]
    answer = await ask((b"if-none-match", form.replace(b"%b", etag)))
    assert (answer.status, answer.body) == (304, b"")
    assert answer.headers[b"etag"] == etag
    assert b"content-length" not in answer.headers


@pytest.mark.parametrize("value", [b"", b'"other"', b'W/"other"'])
async def test_it_sends_the_document_to_who_has_another(value: bytes) -> None:
    assert (await ask((b"if-none-match", value))).status == 200
