"""Following logs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
import redis.asyncio

from inference.events import Event, Finished, FinishReason, TextDelta, Usage
from inference.transport import connection as connection_module
from inference.transport import log as log_module
from inference.transport.courier import Courier
from inference.transport.keys import Keys
from inference.transport.log import Follower, LogReader, Position, encode_events
from inference.transport.log_writer import LogWriter
from inference.transport.options import TransportOptions
from inference.transport.streams import Entry

FINISHED = Finished(
    reason=FinishReason.END, usage=Usage(prompt_tokens=1, cached_tokens=0, output_tokens=1)
)


def texts(*names: str) -> list[Event]:
    return [TextDelta(name) for name in names]


def entry(number: int, total: int, *names: str) -> Entry:
    return f"{number}-0".encode(), {
        b"w": b"1",
        b"n": str(total).encode(),
        b"e": encode_events(texts(*names)),
    }


def test_what_comes_twice_is_taken_once() -> None:
    position = Position()
    assert position.take([entry(1, 2, "a", "b"), entry(2, 2, "a", "b")]) == texts("a", "b")
    assert position.take([entry(3, 4, "a", "b", "c", "d")]) == texts("c", "d")
    assert position.take([entry(4, 3, "c"), entry(5, 4)]) == []
    assert position.take([entry(6, 5, "e")]) == texts("e")
    assert position.after == b"6-0"


def test_where_something_is_missing_it_reads_again_from_the_beginning() -> None:
    position = Position()
    position.take([entry(1, 1, "a")])
    assert position.take([entry(3, 3, "c")]) == []
    assert position.after == "0"
    again = [entry(1, 1, "a"), entry(2, 2, "b"), entry(3, 3, "c")]
    assert position.take(again) == texts("b", "c")


@pytest.fixture
async def reader(
    client: redis.asyncio.Redis, options: TransportOptions
) -> AsyncIterator[LogReader]:
    made = LogReader(options, Courier(client))
    await made.start()
    yield made
    await made.stop()


class Log:
    """Writes logs."""

    def __init__(self, client: redis.asyncio.Redis, keys: Keys) -> None:
        self._courier = Courier(client)
        self._keys = keys
        self._writers: dict[str, LogWriter] = {}

    async def say(self, request_id: str, *events: Event) -> None:
        if request_id not in self._writers:
            writer = LogWriter(
                self._courier, self._keys, request_id, time.time() + 60, lambda: None
            )
            await writer.open()
            self._writers[request_id] = writer
        for event in events:
            self._writers[request_id].put(event)
        await self._writers[request_id].flushed()


@pytest.fixture
def log(client: redis.asyncio.Redis, keys: Keys) -> Log:
    return Log(client, keys)


async def hear(follower: Follower, count: int) -> list[Event]:
    """Return the next so many events, or more where they came together."""
    heard: list[Event] = []
    async with asyncio.timeout(20):
        while len(heard) < count:
            heard += await follower.next()
    return heard


async def test_a_follower_hears_what_was_said_before_and_after(reader: LogReader, log: Log) -> None:
    await log.say("r1", *texts("a", "b"))
    follower = reader.follow("r1")
    assert await hear(follower, 2) == texts("a", "b")
    await log.say("r1", TextDelta("c"))
    assert await hear(follower, 1) == texts("c")
    await log.say("r1", FINISHED)
    assert await hear(follower, 1) == [FINISHED]


async def test_a_log_may_begin_after_its_followers_came(reader: LogReader, log: Log) -> None:
    follower = reader.follow("r1")
    assert follower.missing
    await log.say("r1", TextDelta("a"))
    assert await hear(follower, 1) == texts("a")
    assert not follower.missing


async def test_many_follow_many_and_each_hears_its_own(reader: LogReader, log: Log) -> None:
    followers = {f"r{number}": reader.follow(f"r{number}") for number in range(40)}
    for request_id in followers:
        await log.say(request_id, *texts(request_id, "end"))
    late = {request_id: reader.follow(request_id) for request_id in followers}
    for some in (followers, late):
        for request_id, follower in some.items():
            assert await hear(follower, 2) == texts(request_id, "end")


@pytest.fixture
def _long_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a reader that is not woken wait for longer than the tests do."""
    monkeypatch.setattr(connection_module, "SOCKET_TIMEOUT_S", 120.0)
    monkeypatch.setattr(log_module, "BLOCK_MS", 60_000)


@pytest.mark.usefixtures("_long_reads")
async def test_a_follower_who_comes_while_others_wait_hears_at_once(
    client: redis.asyncio.Redis, options: TransportOptions, log: Log
) -> None:
    reader = LogReader(options, Courier(client))
    await reader.start()
    reader.follow("silent")
    await log.say("r1", TextDelta("a"))
    assert await hear(reader.follow("r1"), 1) == texts("a")
    await reader.stop()


async def test_one_that_ended_can_be_followed_by_one_more(reader: LogReader, log: Log) -> None:
    first = reader.follow("r1")
    await log.say("r1", TextDelta("a"), FINISHED)
    await hear(first, 2)
    assert await hear(reader.follow("r1"), 2) == [TextDelta("a"), FINISHED]


async def test_leaving_disturbs_nobody(reader: LogReader, log: Log) -> None:
    leaving, staying = reader.follow("r1"), reader.follow("r1")
    leaving.close()
    leaving.close()
    await log.say("r1", TextDelta("a"))
    assert await hear(staying, 1) == texts("a")
    staying.close()
    again = reader.follow("r1")
    assert await hear(again, 1) == texts("a")


async def test_a_follower_can_be_woken(reader: LogReader) -> None:
    follower = reader.follow("r1")
    waiting = asyncio.create_task(follower.next())
    await asyncio.sleep(0)
    follower.wake()
    async with asyncio.timeout(20):
        assert await waiting == []


async def test_a_quiet_log_says_so_to_its_followers(
    reader: LogReader, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "QUIET_S", 0.05)
    follower = reader.follow("r1")
    async with asyncio.timeout(20):
        assert await follower.next() == []
        assert await follower.next() == []
    assert follower.quiet_s >= 0.05


async def test_a_log_that_is_lost_and_written_again_is_heard_once(
    client: redis.asyncio.Redis, keys: Keys, reader: LogReader, log: Log
) -> None:
    follower = reader.follow("r1")
    await log.say("r1", *texts("a", "b"))
    assert await hear(follower, 2) == texts("a", "b")
    await client.delete(keys.log("r1"))
    await log.say("r1", TextDelta("c"))
    assert await hear(follower, 1) == texts("c")


async def test_a_log_that_cannot_be_read_disturbs_no_other(
    client: redis.asyncio.Redis,
    keys: Keys,
    reader: LogReader,
    log: Log,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_module, "QUIET_S", 0.05)
    await client.xadd(keys.log("bad"), {"n": b"1", "e": b"\xc1"})
    bad, good = reader.follow("bad"), reader.follow("r1")
    await log.say("r1", TextDelta("a"))
    assert await hear(good, 1) == texts("a")
    async with asyncio.timeout(20):
        assert await bad.next() == []
