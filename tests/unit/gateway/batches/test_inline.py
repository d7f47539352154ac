"""Consumers whose requests hold whole batches: a client that leaves, and results that break off."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from io import BytesIO
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from gateway.batches import inline
from gateway.batches.bodies import Buffer
from gateway.batches.endpoints import MESSAGES
from gateway.batches.inline import (
    MAX_KEY_CHARS,
    InlineBatchConsumer,
    InlineForm,
    ResultsConsumer,
)
from gateway.batches.render import EndedRow
from gateway.batches.rows import Row, RowReader
from gateway.http.request import ApiRequest
from gateway.http.slow_reader import SlowReader
from gateway.services import Services
from gateway.threads import DatabaseThreads
from inference.errors import ErrorCode, TandemError
from jobs.models import Batch, Work
from tests.unit.gateway.batches.material import TERMS, messages_body, row
from tests.unit.gateway.batches.test_render import DONE

SCOPE = {
    "type": "http",
    "method": "POST",
    "path": "/v1/messages/batches",
    "query_string": b"",
    "headers": [
        (b"content-type", b"application/json"),
        (b"user-agent", b"curl/8\0"),
        (b"idempotency-key", b"monday"),
    ],
    "client": ("10.0.0.1", 5),
}


def services(threads: DatabaseThreads) -> Services:
    directory = SimpleNamespace(catalogue=TERMS.catalogue, prices=TERMS.prices)
    config = SimpleNamespace(
        UNKNOWN_FIELDS="ignore", MCP_SERVERS_IN_REQUESTS=False, REQUEST_TIMEOUT_S=10
    )
    made = SimpleNamespace(
        batch_threads=threads, database=threads, directory=directory, config=config, images=None
    )
    return cast(Services, made)


def consumer(threads: DatabaseThreads) -> InlineBatchConsumer:
    made = InlineBatchConsumer(services(threads))
    made.scope = SCOPE
    made.request = ApiRequest(SCOPE)
    made.principal = TERMS.principal
    made.upload = BytesIO(b"{}")
    return made


def form(decode: Callable[[Buffer], Iterator[Row]]) -> InlineForm:
    return InlineForm(Batch.Form.ANTHROPIC, MESSAGES, MESSAGES, decode, RowReader.read_all)


@pytest.mark.django_db(transaction=True)
async def test_a_batch_says_who_sent_it() -> None:
    threads = DatabaseThreads(1)
    sender = consumer(threads)
    body = await sender.map_body()
    batch = await sender.create_batch(body, form(lambda _: iter([row(messages_body())])))
    await threads.stop()
    assert str(batch.id) == sender.request.id
    assert (batch.client, batch.address) == ("curl/8", "10.0.0.1")
    assert batch.idempotency_key == "monday"
    assert (batch.expires_at - batch.created_at).total_seconds() == 24 * 60 * 60


async def test_an_idempotency_key_is_not_cut() -> None:
    """What is left of it could be another request's."""
    headers = [(b"idempotency-key", b"k" * (MAX_KEY_CHARS + 1))]
    sender = consumer(DatabaseThreads(1))
    sender.request = ApiRequest(SCOPE | {"headers": headers}, b"")
    with pytest.raises(TandemError, match="Idempotency-Key") as refused:
        sender.new_batch(memoryview(b"{}"), Batch.Form.ANTHROPIC)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.django_db(transaction=True)
async def test_a_client_that_leaves_before_its_batch_is_there_has_none() -> None:
    threads = DatabaseThreads(1)
    reading = threading.Event()

    def endless(body: Buffer) -> Iterator[Row]:
        line = 0
        while True:
            line += 1
            yield row(messages_body(), line)
            reading.set()

    task = asyncio.create_task(consumer(threads).create_batch(memoryview(b"{}"), form(endless)))
    await asyncio.to_thread(reading.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    # It waits for the thread, which would never end.
    await threads.stop()

    def left() -> tuple[bool, bool]:
        return Batch.objects.exists(), Work.objects.exists()

    after = DatabaseThreads(1)
    assert await after.run(left) == (False, False)
    await after.stop()


class Results(ResultsConsumer):
    """Sends pages that the test gives it."""

    def __init__(self, threads: DatabaseThreads, method: str = "GET") -> None:
        super().__init__(services(threads))
        self.scope = SCOPE | {"method": method}
        self.request = ApiRequest(self.scope)
        self.sent: list[dict[str, Any]] = []
        self.base_send = self._keep

    async def _keep(self, message: dict[str, Any]) -> None:
        self.sent.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(message["body"] for message in self.sent[1:])

    @property
    def whole(self) -> bool:
        return not self.sent[-1].get("more_body", True)


Pages = Callable[[object, int], list[EndedRow]]


async def send(pages: Pages, monkeypatch: pytest.MonkeyPatch, method: str = "GET") -> Results:
    monkeypatch.setattr(inline, "page", pages)
    threads = DatabaseThreads(1)
    results = Results(threads, method)
    await results.send_rows(Batch(), [], lambda row: b"%d" % row.line, frame=(b"[", b",", b"]"))
    await threads.stop()
    return results


def ended(*lines: int) -> list[EndedRow]:
    return [msgspec.structs.replace(DONE, line=line) for line in lines]


async def test_pages_of_results_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = {0: ended(1, 2), 2: ended(3), 3: []}
    results = await send(lambda _, after: pages[after], monkeypatch)
    assert results.body == b"[1,2,3]"
    assert results.whole
    results = await send(lambda _, after: [], monkeypatch)
    assert results.body == b"[]"
    results = await send(lambda _, after: pages[after], monkeypatch, "HEAD")
    assert (results.body, results.whole) == (b"", True)


async def test_results_that_break_off_do_not_look_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    dropped: list[SlowReader] = []
    monkeypatch.setattr(SlowReader, "drop", lambda self: dropped.append(self))

    def pages(batch: object, after: int) -> list[EndedRow]:
        if after:
            raise TandemError(ErrorCode.UNAVAILABLE, "the database is away")
        return ended(1)

    results = await send(pages, monkeypatch)
    assert len(dropped) == 1
    assert not results.whole
