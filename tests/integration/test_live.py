"""The dashboard's figures, from a real Redis-protocol server and a real PostgreSQL."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import redis.asyncio
from django.conf import settings
from django.db import InternalError, connection, transaction
from django.utils import timezone

from gateway.live.board import Board
from gateway.live.heartbeats import Heartbeats
from gateway.live.hub import Hub
from gateway.live.reading import Reader
from inference.errors import ErrorCode, TandemError
from inference.models import Model
from inference.request import Lane
from inference.transport.connection import connect
from inference.transport.frames import encode
from inference.transport.keys import Keys
from inference.transport.options import TransportOptions
from inference.transport.records import Record
from jobs.recorder.batch import write
from tests.conftest import Eventually
from tests.records import admitted, closed, completed, new_id
from tests.unit.gateway.live.engine_reports import report

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def options() -> TransportOptions:
    return TransportOptions(redis_url=settings.REDIS_URL, prefix=f"live-{secrets.token_hex(4)}")


@pytest.fixture
def keys(options: TransportOptions) -> Keys:
    return Keys(options.prefix)


@pytest.fixture
async def client(options: TransportOptions) -> AsyncIterator[redis.asyncio.Redis]:
    async with connect(options.redis_url) as made:
        yield made
        if left := [key async for key in made.scan_iter(f"{options.prefix}:*")]:
            await made.delete(*left)


@pytest.fixture
def _model() -> None:
    Model.objects.create(id="m", context_tokens=1, backend=Model.Backend.SCRIPTED)


class Page:
    """A watcher that has every permission, and keeps what it is told."""

    permissions = frozenset({"jobs.view_batch", "jobs.view_ledgerentry"})

    def __init__(self) -> None:
        self.messages = 0
        self.parts: dict[str, Any] = {}

    async def tell(self, text: str) -> None:
        message = json.loads(text)
        self.messages += 1
        self.parts = message["parts"] if message["whole"] else self.parts | message["parts"]

    async def give_up(self) -> None:
        raise AssertionError("it came to a halt")


async def beat(
    client: redis.asyncio.Redis, keys: Keys, engine_id: str = "e", **fields: Any
) -> None:
    said = report(engine_id, started_at_s=time.time(), **fields)
    await client.sadd(keys.engines, engine_id)
    await client.set(keys.engine(engine_id), encode(said))


async def test_a_look_finds_engines_queues_and_records(
    client: redis.asyncio.Redis, keys: Keys
) -> None:
    await beat(client, keys)
    await client.sadd(keys.engines, "silent", "of-another-version")
    await client.set(keys.engine("of-another-version"), b"\xc1")
    before_s = time.time()
    for body in (b"x" * 100_000, b"y"):
        await client.xadd(keys.queue("m", Lane.REALTIME), {"r": body})
    await client.xadd(keys.records, {"r": b""}, id="1700000000000-0")
    await client.xadd(keys.records, {"r": b""})
    sight = await Heartbeats(client, keys).look(["m", "n"])
    assert set(sight.reports) == {"e"}
    assert sight.silent == {"silent", "of-another-version"}
    assert (sight.records_since_s, sight.records_dead) == (1_700_000_000, 0)
    first, *others = sight.queues
    assert first[:3] == ("m", Lane.REALTIME, 2)
    assert first.since_s is not None
    assert before_s - 1 <= first.since_s <= time.time() + 1
    assert [queue[2:] for queue in others] == [(0, None)] * 3


async def test_a_look_at_nothing_finds_nothing(client: redis.asyncio.Redis, keys: Keys) -> None:
    sight = await Heartbeats(client, keys).look([])
    assert (sight.reports, sight.silent, sight.queues) == ({}, set(), [])
    assert sight.records_since_s is None


@pytest.mark.usefixtures("_model")
async def test_a_page_is_told_of_engines_as_they_come_and_of_requests_as_they_end(
    client: redis.asyncio.Redis, keys: Keys, options: TransportOptions, eventually: Eventually
) -> None:
    hub, page = Hub(options), Page()
    await hub.join(page)
    # Whatever does not answer within a second is told after the first message.
    await eventually(lambda: {"rates", "batch", "model/m", "usage/week"} <= page.parts.keys())
    assert [alert["kind"] for alert in page.parts["alerts"]] == ["no_engine"]
    assert page.parts["rates"]["realtime"]["requests_per_s"] == 0
    assert page.parts["batch"] == {"open": 0}
    await beat(client, keys)
    await eventually(lambda: "engine/e" in page.parts and not page.parts["alerts"])
    await asyncio.to_thread(settle_some, 30)
    await eventually(lambda: 0 < page.parts["rates"]["realtime"]["requests_per_s"] <= 0.5)
    await eventually(lambda: page.parts["usage/week"]["total"]["requests"] == 30)
    (latency,) = page.parts["latency"]
    assert (latency["model"], latency["requests"]) == ("m", 30)
    hub.leave(page)
    await eventually(
        lambda: not [each for each in asyncio.all_tasks() if each.get_name() == "live"]
    )


def settle_some(count: int) -> None:
    """Have so many requests end now."""
    at_s = time.time() - 0.75
    told: list[Record] = []
    for _ in range(count):
        name = new_id()
        told += [admitted(name, at_s), completed(name, at_s), closed(name, at_s)]
    try:
        with transaction.atomic():
            write(told, timezone.now())
    finally:
        connection.close()


async def test_while_redis_is_away_the_others_are_told_and_it_is_said(
    options: TransportOptions, eventually: Eventually
) -> None:
    nowhere = TransportOptions(redis_url="redis://127.0.0.1:1", prefix=options.prefix)
    async with Board.open(nowhere) as board:
        await eventually(lambda: "rates" in board.parts() and board.parts()["alerts"] != b"[]")
        (alert,) = json.loads(board.parts()["alerts"])
    assert (alert["kind"], alert["text"]) == ("away", "Redis does not answer.")


@pytest.fixture
def reader() -> Iterator[Reader]:
    made = Reader()
    yield made
    asyncio.run(made.close())


def test_what_is_read_changes_nothing_and_takes_no_longer_than_it_may(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.live.reading._LONGEST_MS", 50)

    def sleep() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(60)")

    def change() -> None:
        Model.objects.create(id="m", context_tokens=1)

    with pytest.raises(TandemError) as raised:
        asyncio.run(reader.read(sleep))
    assert raised.value.code is ErrorCode.UNAVAILABLE
    with pytest.raises(InternalError, match="read-only"):
        asyncio.run(reader.read(change))
    assert not Model.objects.exists()
