"""The engine's way in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis.asyncio

from inference.request import GenerationRequest, Lane, Message, Role, Sampling, TextPart
from inference.transport import intake as intake_module
from inference.transport import streams as streams_module
from inference.transport.courier import Courier
from inference.transport.frames import (
    Accepted,
    Cancel,
    Order,
    QueueEntry,
    decode_frames,
    encode,
)
from inference.transport.intake import Intake
from inference.transport.keys import GROUP, Keys
from inference.transport.options import TransportOptions
from inference.transport.streams import Reader
from tests.streams import entries_of


def make_entry(request_id: str = "r1") -> QueueEntry:
    request = GenerationRequest(
        id=request_id,
        model="m",
        messages=(Message(role=Role.USER, parts=(TextPart("hi"),)),),
        sampling=Sampling(max_tokens=1),
        deadline_s=0,
    )
    return QueueEntry(gateway_id="g1", attempt=0, request=request)


@pytest.fixture
async def reader(options: TransportOptions) -> AsyncIterator[Reader]:
    made = Reader(options.redis_url)
    yield made
    await made.aclose()


@pytest.fixture
async def intake(client: redis.asyncio.Redis, reader: Reader, keys: Keys) -> Intake:
    made = Intake(reader, client, Courier(client), keys, "e1", keys.queue("m", Lane.REALTIME))
    await made.open()
    return made


@pytest.fixture
def queue(keys: Keys) -> str:
    return keys.queue("m", Lane.REALTIME)


async def put(client: redis.asyncio.Redis, queue: str, entry: QueueEntry) -> None:
    await client.xadd(queue, {"r": encode(entry)})


async def take(intake: Intake) -> tuple[bytes, QueueEntry]:
    """Take until something comes."""
    async with asyncio.timeout(20):
        while True:
            if taken := await intake.take():
                return taken


async def welcome(client: redis.asyncio.Redis, keys: Keys) -> None:
    """Let gateway `g1` be alive."""
    await client.set(keys.gateway("g1"), b"1")
    await client.xadd(keys.reply("g1"), {"hello": b"1"})


async def test_requests_are_taken_in_order(
    client: redis.asyncio.Redis, intake: Intake, queue: str
) -> None:
    for request_id in ("a", "b"):
        await put(client, queue, make_entry(request_id))
    assert [(await take(intake))[1].request.id for _ in range(2)] == ["a", "b"]


async def test_a_request_goes_to_one_engine_only(
    client: redis.asyncio.Redis, reader: Reader, keys: Keys, intake: Intake, queue: str
) -> None:
    other = Intake(reader, client, Courier(client), keys, "e2", queue)
    await put(client, queue, make_entry())
    await take(intake)
    assert await other.take() is None


async def test_who_does_not_wait_takes_only_what_is_there(
    client: redis.asyncio.Redis, intake: Intake, queue: str
) -> None:
    assert await intake.take(wait=False) is None
    await put(client, queue, make_entry())
    assert await intake.take(wait=False) is not None


async def test_an_arrival_is_noticed_and_not_taken(
    client: redis.asyncio.Redis, intake: Intake, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Were it not noticed, waiting would end with the connection's time-out, and raise that.
    monkeypatch.setattr(streams_module, "BLOCK_MS", 60_000)
    monkeypatch.setattr(intake_module, "Unreachable", ())
    noticing = asyncio.create_task(intake.arrival())
    await put(client, queue, make_entry("a"))
    await noticing
    await put(client, queue, make_entry("b"))
    await intake.arrival()
    assert [(await take(intake))[1].request.id for _ in range(2)] == ["a", "b"]


async def test_what_was_taken_is_no_arrival(
    client: redis.asyncio.Redis, intake: Intake, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams_module, "BLOCK_MS", 10)
    await put(client, queue, make_entry("a"))
    # It is not confirmed yet, and so still there.
    await take(intake)
    assert not await intake.arrival()
    await put(client, queue, make_entry("b"))
    assert await intake.arrival()
    assert not await intake.arrival()


async def test_confirming_takes_the_request_off_the_queue_and_tells_its_gateway(
    client: redis.asyncio.Redis, keys: Keys, intake: Intake, queue: str
) -> None:
    await welcome(client, keys)
    await put(client, queue, make_entry())
    assert await intake.confirm(*await take(intake))
    assert await client.xlen(queue) == 0
    (pending,) = [group["pending"] for group in await client.xinfo_groups(queue)]
    assert pending == 0
    (_, fields) = (await entries_of(client, keys.reply("g1")))[-1]
    (frame,) = decode_frames(fields[b"f"])
    assert (frame.request_id, frame.seq, frame.body) == ("r1", 0, Accepted("e1"))


async def test_the_request_of_a_dead_gateway_is_not_run(
    client: redis.asyncio.Redis, keys: Keys, intake: Intake, queue: str
) -> None:
    await welcome(client, keys)
    await client.delete(keys.gateway("g1"))
    await put(client, queue, make_entry())
    assert not await intake.confirm(*await take(intake))
    assert await client.xlen(queue) == 0


async def test_the_request_of_a_gateway_without_a_reply_stream_is_not_run(
    client: redis.asyncio.Redis, keys: Keys, intake: Intake, queue: str
) -> None:
    await client.set(keys.gateway("g1"), b"1")
    await put(client, queue, make_entry())
    assert not await intake.confirm(*await take(intake))
    assert not await client.exists(keys.reply("g1"))


async def test_what_a_dead_engine_had_taken_is_claimed(
    client: redis.asyncio.Redis,
    reader: Reader,
    keys: Keys,
    intake: Intake,
    queue: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(intake_module, "_CLAIM_IDLE_MS", 1)
    await put(client, queue, make_entry())
    taken = await take(intake)
    other = Intake(reader, client, Courier(client), keys, "e2", queue)
    assert await take(other) == taken


async def test_a_queue_that_was_lost_is_made_anew(
    client: redis.asyncio.Redis, intake: Intake, queue: str
) -> None:
    await client.delete(queue)
    await put(client, queue, make_entry())
    assert (await take(intake))[1] == make_entry()


async def test_a_request_that_cannot_be_read_is_dropped(
    client: redis.asyncio.Redis, intake: Intake, queue: str
) -> None:
    await client.xadd(queue, {"r": b"\xc1"})
    await client.xadd(queue, {"x": b""})
    await put(client, queue, make_entry())
    assert (await take(intake))[1] == make_entry()
    assert await client.xlen(queue) == 1


async def test_what_it_is_told_comes_in_order_from_before_and_after_it_looked(
    client: redis.asyncio.Redis, keys: Keys, intake: Intake
) -> None:
    told = intake.control()
    for attempt in range(3):
        sent = Cancel(request_id="r1", attempt=attempt)
        await client.xadd(keys.control("e1"), {"c": encode(sent)})
        assert await anext(told) == sent
    await client.xadd(keys.control("e1"), {"o": "reload"})
    assert await anext(told) is Order.RELOAD


async def test_what_it_is_told_by_another_version_is_passed_over(
    client: redis.asyncio.Redis, keys: Keys, intake: Intake
) -> None:
    messages: list[dict[Any, Any]] = [
        {"x": b""},
        {"c": b"\xc1"},
        {"o": b"dance"},
        {"o": b"\xff"},
        {"o": b"drain"},
    ]
    for fields in messages:
        await client.xadd(keys.control("e1"), fields)
    assert await anext(intake.control()) is Order.DRAIN


async def test_closing_leaves_what_was_not_confirmed_to_others(
    client: redis.asyncio.Redis, keys: Keys, intake: Intake, queue: str
) -> None:
    await client.xadd(keys.control("e1"), {"c": b""})
    await put(client, queue, make_entry())
    await take(intake)
    await intake.close()
    assert not await client.exists(keys.control("e1"))
    assert (await client.xpending(queue, GROUP))["pending"] == 1
