"""Engines, a real Redis-protocol server and followers of logs: nothing is said twice or lost."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis.asyncio
from django.conf import settings

from inference.backends.scripted import ScriptedBackend
from inference.engine import drain as drain_module
from inference.engine import host as host_module
from inference.engine import outcomes as outcomes_module
from inference.engine.host import EngineHost
from inference.engine.work import WorkItem
from inference.events import Event, Finished, Started
from inference.fold import Parts
from inference.request import TextPart, ThinkingPart, ToolCallPart
from inference.transport.connection import connect
from inference.transport.courier import Courier
from inference.transport.keys import Keys
from inference.transport.log import Follower, LogReader
from inference.transport.options import TransportOptions
from inference.transport.records import Ending
from tests.conftest import Eventually
from tests.contracts.requests import make_entry, text_of
from tests.work_source import FakeSource, make_item

WORDS = " ".join(str(number) for number in range(60))
ITEM = "script: " + json.dumps({"text": WORDS, "token_delay_s": 0.02})


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "DRAIN_S", 0.05)
    monkeypatch.setattr(drain_module, "LEASE_RENEW_S", 0.05)
    monkeypatch.setattr(drain_module, "POLL_S", 0.02)
    monkeypatch.setattr(outcomes_module, "_RETRY_AFTER_S", 0.02)


@pytest.fixture
def options() -> TransportOptions:
    return TransportOptions(
        redis_url=settings.REDIS_URL,
        prefix=f"integration-{secrets.token_hex(4)}",
        heartbeat_s=0.05,
        dead_after_s=1.0,
    )


@pytest.fixture
async def client(options: TransportOptions) -> AsyncIterator[redis.asyncio.Redis]:
    async with connect(options.redis_url) as connected:
        yield connected


@pytest.fixture
async def reader(
    options: TransportOptions, client: redis.asyncio.Redis
) -> AsyncIterator[LogReader]:
    made = LogReader(options, Courier(client))
    await made.start()
    yield made
    await made.stop()


@asynccontextmanager
async def engine(
    options: TransportOptions, source: FakeSource, **fields: Any
) -> AsyncIterator[EngineHost]:
    """Run an engine that drains a source."""
    entry = make_entry(**({"context_tokens": 1_000_000} | fields))
    backend = ScriptedBackend(entry)
    host = EngineHost(entry, backend, options, 30, lambda _engine_id: source)
    task = asyncio.create_task(host.run())
    yield host
    host.request_stop()
    async with asyncio.timeout(20):
        await task


async def hear(follower: Follower, events: list[Event], count: int | None = None) -> list[Event]:
    """Add what a follower hears, until the end or until there are so many."""
    async with asyncio.timeout(30):
        while count is None or len(events) < count:
            if events and isinstance(events[-1], Finished):
                break
            events += await follower.next()
    return events


async def test_a_follower_hears_the_answer_and_its_end_once_it_is_kept(
    options: TransportOptions, reader: LogReader, eventually: Eventually
) -> None:
    item = make_item(ITEM, logged=True)
    source = FakeSource(item)
    refusing = True

    def refuse() -> None:
        if refusing:
            raise ConnectionError

    source.on_finish = refuse
    async with engine(options, source) as host:
        follower = reader.follow(item.request.id)
        events: list[Event] = await hear(follower, [], 61)
        assert isinstance(events[0], Started)
        assert text_of(events) == WORDS
        await eventually(lambda: host.report().work_in_flight == 0)
        refusing = False
        events = await hear(follower, events)
        assert isinstance(events[-1], Finished)
        (result,) = source.results
        assert result.events == tuple(events)
        assert result.answer is not None
        assert result.answer.text == WORDS


async def test_another_engine_goes_on_where_the_first_one_stopped(
    options: TransportOptions, reader: LogReader
) -> None:
    item = make_item(ITEM, logged=True)
    source = FakeSource(item)
    follower = reader.follow(item.request.id)
    events: list[Event] = []
    for count in (10, 20):
        async with engine(options, source):
            await hear(follower, events, count)
    assert source.results == []
    async with engine(options, source):
        await hear(follower, events)
        late = await hear(reader.follow(item.request.id), [])
    assert text_of(events) == WORDS
    assert sum(isinstance(event, Started) for event in events) == 1
    assert late == events
    (result,) = source.results
    assert result.events == tuple(events)
    assert result.answer is not None
    assert result.answer.text == WORDS


async def test_thoughts_and_calls_go_on_too(options: TransportOptions, reader: LogReader) -> None:
    script = {
        "thinking": "one two three four five six",
        "text": "seven eight nine ten",
        "tool_calls": [{"name": "look", "arguments": ['{"a": ', "1", "}"]}],
        "token_delay_s": 0.02,
    }
    item = make_item("script: " + json.dumps(script), logged=True)
    source = FakeSource(item)
    follower = reader.follow(item.request.id)
    events: list[Event] = []
    for count in (3, 8, 12, 13):
        async with engine(options, source):
            await hear(follower, events, count)
    async with engine(options, source):
        await hear(follower, events)
    parts = Parts()
    for event in events[1:-1]:
        parts.add(event)  # type: ignore[arg-type]
    thought, text, call = parts.closed()
    assert thought == ThinkingPart("one two three four five six")
    assert text == TextPart("seven eight nine ten")
    assert isinstance(call, ToolCallPart)
    assert call.arguments == '{"a": 1}'
    (result,) = source.results
    assert result.answer is not None
    assert result.answer.parts == (thought, text, call)


async def test_an_engine_that_says_something_else_ends_it(
    options: TransportOptions, reader: LogReader, eventually: Eventually
) -> None:
    item = make_item(logged=True)
    source = FakeSource(item)
    follower = reader.follow(item.request.id)
    slow = {"token_delay_s": 0.02}
    async with engine(options, source, engine_options={"text": "a b c d e f g h i j", **slow}):
        await hear(follower, [], 3)
    async with engine(options, source, engine_options={"text": "a x", **slow}):
        await eventually(lambda: source.ending_of(item) is Ending.FAILED)
    (result,) = source.results
    assert "another could not continue it" in result.message
    assert source.given_back == [item.request.id]


async def test_a_server_that_forgets_everything_costs_followers_nothing(
    options: TransportOptions, client: redis.asyncio.Redis, reader: LogReader
) -> None:
    item = make_item(ITEM, logged=True)
    source = FakeSource(item)
    follower = reader.follow(item.request.id)
    events: list[Event] = []
    async with engine(options, source):
        for count in (5, 15, 25):
            await hear(follower, events, count)
            await forget(client, options)
        await hear(follower, events)
    assert text_of(events) == WORDS


async def test_an_engine_whose_work_another_has_taken_over_says_nothing_more(
    options: TransportOptions, reader: LogReader, eventually: Eventually
) -> None:
    item = make_item(ITEM, logged=True)
    zombies, source = FakeSource(item), FakeSource(item)
    follower = reader.follow(item.request.id)
    events: list[Event] = []
    async with engine(options, zombies) as zombie:
        await hear(follower, events, 10)
        zombies.taken.clear()
        async with engine(options, source):
            await eventually(lambda: zombie.report().work_in_flight == 0)
            await hear(follower, events)
    assert text_of(events) == WORDS
    assert zombies.results == []
    assert source.ending_of(item) is Ending.FINISHED


async def test_work_and_requests_share_an_engine(
    options: TransportOptions, reader: LogReader, eventually: Eventually
) -> None:
    items: list[WorkItem] = [make_item(ITEM, logged=True) for _ in range(20)]
    source = FakeSource(*items)
    async with engine(options, source, capacity=16) as host:
        await eventually(lambda: host.report().work_in_flight == 15)
        heard = await asyncio.gather(*(hear(reader.follow(item.request.id), []) for item in items))
    assert {text_of(events) for events in heard} == {WORDS}


async def forget(client: redis.asyncio.Redis, options: TransportOptions) -> None:
    """Delete the install's logs in one step, as a restart without data does."""
    found = [key async for key in client.scan_iter(Keys(options.prefix).log("*"))]
    await client.delete(*found)
