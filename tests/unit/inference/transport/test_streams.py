"""Entries of streams: how they are read, and what they say of themselves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
import redis.asyncio
from redis.exceptions import ResponseError

from inference.transport import streams as streams_module
from inference.transport.keys import Keys
from inference.transport.options import TransportOptions
from inference.transport.streams import Reader, added_at_s


@pytest.fixture(params=["", "protocol=2", "protocol=3"])
async def reader(
    options: TransportOptions, request: pytest.FixtureRequest
) -> AsyncIterator[Reader]:
    url = options.redis_url
    made = Reader(f"{url}{'&' if '?' in url else '?'}{request.param}" if request.param else url)
    yield made
    await made.aclose()


async def test_an_entry_says_when_it_was_added(client: redis.asyncio.Redis, keys: Keys) -> None:
    before_s = time.time()
    entry_id = await client.xadd(keys.records, {"r": b""})
    assert isinstance(entry_id, bytes)
    # Redis counts whole milliseconds.
    assert before_s - 0.001 <= added_at_s(entry_id) <= time.time()
    assert added_at_s(b"1700000000123-7") == 1700000000.123


async def test_what_is_there_is_read_in_its_order(
    reader: Reader, client: redis.asyncio.Redis, keys: Keys
) -> None:
    first = await client.xadd(keys.records, {"a": b"1", "b": b"2"})
    second = await client.xadd(keys.records, {"c": b"\x00\xff"})
    assert await reader.read(keys.records, "0", count=9) == [
        (first, {b"a": b"1", b"b": b"2"}),
        (second, {b"c": b"\x00\xff"}),
    ]
    assert await reader.read(keys.records, "0", count=1) == [(first, {b"a": b"1", b"b": b"2"})]
    assert await reader.read(keys.records, first, count=1) == [(second, {b"c": b"\x00\xff"})]


async def test_what_comes_while_it_waits_is_read(
    reader: Reader, client: redis.asyncio.Redis, keys: Keys
) -> None:
    waiting = asyncio.ensure_future(reader.read(keys.records, "$", count=9))
    while not waiting.done():
        await client.xadd(keys.records, {"a": b"1"})
    assert waiting.result()[0][1] == {b"a": b"1"}


async def test_nothing_is_no_fault(
    reader: Reader, client: redis.asyncio.Redis, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams_module, "BLOCK_MS", 1)
    assert await reader.read(keys.records, "0", count=1) == []
    await client.xgroup_create(keys.records, "g", mkstream=True)
    for wait in (True, False):
        assert await reader.read_group(keys.records, "g", "me", wait=wait) is None


async def test_a_group_gives_each_entry_once(
    reader: Reader, client: redis.asyncio.Redis, keys: Keys
) -> None:
    await client.xgroup_create(keys.records, "g", mkstream=True)
    added = [await client.xadd(keys.records, {"n": str(number)}) for number in range(2)]
    for number, wait in enumerate((True, False)):
        told = {b"n": str(number).encode()}
        entry = await reader.read_group(keys.records, "g", "me", wait=wait)
        assert entry == (added[number], told)
    assert await reader.read_group(keys.records, "g", "me", wait=False) is None


async def test_a_missing_group_is_told(reader: Reader, keys: Keys) -> None:
    with pytest.raises(ResponseError, match="NOGROUP"):
        await reader.read_group(keys.records, "g", "me", wait=True)


async def test_who_leaves_while_it_waits_leaves_nothing_to_the_next(
    reader: Reader, client: redis.asyncio.Redis, keys: Keys
) -> None:
    await client.xadd(keys.records, {"a": b"1"})
    for turns in range(30):
        task = asyncio.ensure_future(reader.read(keys.engines, "$", count=1))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert (await reader.read(keys.records, "0", count=1))[0][1] == {b"a": b"1"}
