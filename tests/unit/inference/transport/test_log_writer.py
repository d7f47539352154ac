"""An engine's end of a log, on a real server that may forget."""

from __future__ import annotations

import time

import pytest
import redis.asyncio

from inference.events import Event, Finished, FinishReason, Started, TextDelta, Usage
from inference.transport.courier import Courier
from inference.transport.keys import Keys
from inference.transport.log import Position
from inference.transport.log_writer import KEEP_ENDED_S, LogWriter
from tests.streams import entries_of

FINISHED = Finished(
    reason=FinishReason.END, usage=Usage(prompt_tokens=1, cached_tokens=0, output_tokens=1)
)


class Engine:
    """One engine that writes the log of request `r1`."""

    def __init__(self, client: redis.asyncio.Redis, keys: Keys) -> None:
        self.stopped = False
        self.writer = LogWriter(Courier(client), keys, "r1", time.time() + 60, self._stop)

    def _stop(self) -> None:
        self.stopped = True

    async def say(self, *events: Event) -> None:
        for event in events:
            self.writer.put(event)
        await self.writer.flushed()


@pytest.fixture
def engine(client: redis.asyncio.Redis, keys: Keys) -> Engine:
    return Engine(client, keys)


@pytest.fixture
def other(client: redis.asyncio.Redis, keys: Keys) -> Engine:
    return Engine(client, keys)


async def log_of(client: redis.asyncio.Redis, keys: Keys) -> list[Event]:
    """Return what a reader makes of the log."""
    return Position().take(await entries_of(client, keys.log("r1")))


async def test_what_is_said_is_in_the_log(
    client: redis.asyncio.Redis, keys: Keys, engine: Engine
) -> None:
    await engine.writer.open()
    await engine.say(Started(1), TextDelta("a"))
    await engine.say(TextDelta("b"))
    assert await log_of(client, keys) == [Started(1), TextDelta("a"), TextDelta("b")]


async def test_events_of_one_turn_are_one_entry(
    client: redis.asyncio.Redis, keys: Keys, engine: Engine
) -> None:
    await engine.writer.open()
    before = await client.xlen(keys.log("r1"))
    await engine.say(*map(TextDelta, "abcdef"))
    assert await client.xlen(keys.log("r1")) == before + 1


async def test_the_next_engine_learns_what_was_said_and_goes_on(
    client: redis.asyncio.Redis, keys: Keys, engine: Engine, other: Engine
) -> None:
    await engine.writer.open()
    await engine.say(Started(1), TextDelta("a"))
    await other.writer.open()
    assert other.writer.events == [Started(1), TextDelta("a")]
    await other.say(TextDelta("b"))
    assert await log_of(client, keys) == [Started(1), TextDelta("a"), TextDelta("b")]


async def test_an_engine_that_another_has_followed_writes_nothing_more(
    client: redis.asyncio.Redis, keys: Keys, engine: Engine, other: Engine
) -> None:
    await engine.writer.open()
    await engine.say(TextDelta("a"))
    await other.writer.open()
    await engine.say(TextDelta("zombie"))
    assert engine.stopped
    await other.say(TextDelta("b"))
    assert not other.stopped
    assert await log_of(client, keys) == [TextDelta("a"), TextDelta("b")]


async def test_a_log_that_the_server_has_lost_is_written_again(
    client: redis.asyncio.Redis, keys: Keys, engine: Engine
) -> None:
    await engine.writer.open()
    await engine.say(TextDelta("a"), TextDelta("b"))
    await client.delete(keys.log("r1"))
    await engine.say(TextDelta("c"))
    assert await log_of(client, keys) == [TextDelta("a"), TextDelta("b"), TextDelta("c")]


async def test_the_end_of_a_log_that_the_server_has_lost_is_written_again(
    client: redis.asyncio.Redis, keys: Keys, engine: Engine
) -> None:
    await engine.writer.open()
    await engine.say(TextDelta("a"))
    await engine.say(TextDelta("b"))
    last_id, _ = (await entries_of(client, keys.log("r1")))[-1]
    await client.xdel(keys.log("r1"), last_id)
    await engine.say(TextDelta("c"))
    assert await log_of(client, keys) == [TextDelta("a"), TextDelta("b"), TextDelta("c")]


async def test_what_a_zombie_wrote_after_a_loss_is_replaced(
    client: redis.asyncio.Redis, keys: Keys, engine: Engine, other: Engine
) -> None:
    await engine.writer.open()
    await engine.say(TextDelta("a"))
    await other.writer.open()
    await other.say(TextDelta("b"))
    await client.delete(keys.log("r1"))
    await engine.say(TextDelta("zombie"))
    assert not engine.stopped
    await other.say(TextDelta("c"))
    assert await log_of(client, keys) == [TextDelta("a"), TextDelta("b"), TextDelta("c")]
    await engine.say(TextDelta("zombie"))
    assert engine.stopped


async def test_a_write_whose_answer_was_lost_is_not_written_twice(
    client: redis.asyncio.Redis, keys: Keys, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await engine.writer.open()
    await engine.say(TextDelta("a"))
    run = Courier.run
    lost: list[object] = []

    async def run_and_lose(*arguments: object) -> object:
        answer = await run(*arguments)  # type: ignore[arg-type]
        if not lost:
            lost.append(answer)
            raise redis.exceptions.ConnectionError("the answer is lost")
        return answer

    monkeypatch.setattr(Courier, "run", run_and_lose)
    await engine.say(TextDelta("b"))
    await engine.say(TextDelta("c"))
    assert lost
    assert await log_of(client, keys) == [TextDelta("a"), TextDelta("b"), TextDelta("c")]


async def test_an_end_of_which_nothing_was_kept_is_taken_back(
    client: redis.asyncio.Redis, keys: Keys, engine: Engine, other: Engine
) -> None:
    await engine.writer.open()
    await engine.say(TextDelta("a"))
    await engine.writer.end(FINISHED)
    await other.writer.open()
    assert other.writer.events == [TextDelta("a")]
    await other.say(TextDelta("b"))
    assert await log_of(client, keys) == [TextDelta("a"), TextDelta("b")]


async def test_a_log_goes_by_itself(
    client: redis.asyncio.Redis, keys: Keys, engine: Engine
) -> None:
    await engine.writer.open()
    await engine.say(TextDelta("a"))
    assert await client.ttl(keys.log("r1")) > KEEP_ENDED_S
    await engine.writer.end(FINISHED)
    assert 0 < await client.ttl(keys.log("r1")) <= KEEP_ENDED_S


async def test_the_log_of_what_failed_goes_too_and_is_kept_if_it_is_tried_again(
    client: redis.asyncio.Redis, keys: Keys, engine: Engine, other: Engine
) -> None:
    await engine.writer.open()
    await engine.say(TextDelta("a"))
    await engine.writer.end(None)
    assert 0 < await client.ttl(keys.log("r1")) <= KEEP_ENDED_S
    await other.writer.open()
    assert await client.ttl(keys.log("r1")) > KEEP_ENDED_S
    assert await log_of(client, keys) == [TextDelta("a")]


async def test_it_waits_for_a_server_that_refuses(
    client: redis.asyncio.Redis, keys: Keys, engine: Engine
) -> None:
    # A key of another kind makes Redis refuse, as a server that is starting does.
    await engine.writer.open()
    await client.set(keys.log("r1"), b"in the way")
    engine.writer.put(TextDelta("a"))
    await client.delete(keys.log("r1"))
    await engine.writer.flushed()
    assert await log_of(client, keys) == [TextDelta("a")]
