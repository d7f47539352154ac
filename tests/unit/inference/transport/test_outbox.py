"""Frames on their way back to the gateways."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import redis.asyncio

from inference.events import TextDelta
from inference.transport.connection import connect
from inference.transport.courier import Courier
from inference.transport.frames import Frame, decode_frames
from inference.transport.keys import Keys
from inference.transport.options import TransportOptions
from inference.transport.outbox import Outbox
from tests.streams import entries_of


@pytest.fixture
def gone() -> list[str]:
    return []


@pytest.fixture
async def outbox(client: redis.asyncio.Redis, keys: Keys, gone: list[str]) -> AsyncIterator[Outbox]:
    made = Outbox(Courier(client), keys, gone.append)
    task = asyncio.create_task(made.run())
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def frame(request_id: str, seq: int) -> Frame:
    return Frame(request_id, 0, "e1", seq, TextDelta(str(seq)))


async def entries(
    client: redis.asyncio.Redis, keys: Keys, gateway_id: str
) -> list[list[tuple[str, int]]]:
    """Return what was written to a gateway: the frames of each entry after the first."""
    found = await entries_of(client, keys.reply(gateway_id))
    return [
        [(each.request_id, each.seq) for each in decode_frames(fields[b"f"])]
        for _, fields in found[1:]
    ]


async def open_reply(client: redis.asyncio.Redis, keys: Keys, gateway_id: str) -> None:
    await client.xadd(keys.reply(gateway_id), {"hello": b"1"})


async def test_the_frames_of_one_step_travel_in_one_entry_for_each_gateway(
    client: redis.asyncio.Redis, keys: Keys, outbox: Outbox
) -> None:
    for gateway_id in ("g1", "g2"):
        await open_reply(client, keys, gateway_id)
    outbox.put("g1", frame("a", 1))
    outbox.put("g1", frame("b", 1))
    outbox.put("g2", frame("c", 1))
    await outbox.flushed()
    assert await entries(client, keys, "g1") == [[("a", 1), ("b", 1)]]
    assert await entries(client, keys, "g2") == [[("c", 1)]]


async def test_frames_keep_their_order_over_many_writes(
    client: redis.asyncio.Redis, keys: Keys, outbox: Outbox
) -> None:
    await open_reply(client, keys, "g1")
    for seq in range(50):
        outbox.put("g1", frame("a", seq))
        await asyncio.sleep(0)
    await outbox.flushed()
    written = await entries(client, keys, "g1")
    assert [each for entry in written for each in entry] == [("a", seq) for seq in range(50)]


async def test_a_gateway_without_a_reply_stream_is_gone_and_others_are_not(
    client: redis.asyncio.Redis, keys: Keys, outbox: Outbox, gone: list[str]
) -> None:
    await open_reply(client, keys, "g1")
    outbox.put("dead", frame("a", 1))
    outbox.put("g1", frame("b", 1))
    await outbox.flushed()
    assert gone == ["dead"]
    assert await entries(client, keys, "g1") == [[("b", 1)]]
    assert not await client.exists(keys.reply("dead"))


async def test_frames_wait_until_redis_takes_them(
    client: redis.asyncio.Redis, keys: Keys, options: TransportOptions, outbox: Outbox
) -> None:
    # A key of another kind makes Redis refuse, as a server that is starting does.
    await client.set(keys.reply("g1"), b"in the way")
    outbox.put("g1", frame("a", 1))
    flushed = asyncio.create_task(outbox.flushed())
    async with connect(options.redis_url) as other:
        await other.delete(keys.reply("g1"))
        await open_reply(other, keys, "g1")
    await flushed
    assert await entries(client, keys, "g1") == [[("a", 1)]]
