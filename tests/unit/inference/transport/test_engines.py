"""A gateway's view of the engines."""

from __future__ import annotations

import msgspec
import pytest
import redis.asyncio

from inference.transport.engines import EngineView
from inference.transport.frames import EngineReport, EngineState, encode
from inference.transport.keys import Keys
from inference.transport.options import TransportOptions


@pytest.fixture
def died() -> list[str]:
    return []


@pytest.fixture
def view(
    client: redis.asyncio.Redis, keys: Keys, options: TransportOptions, died: list[str]
) -> EngineView:
    return EngineView(client, keys, options, died.append)


async def report(
    client: redis.asyncio.Redis, keys: Keys, state: EngineState = EngineState.READY
) -> EngineReport:
    """Write the heartbeat of engine `e1` of model `m`."""
    written = EngineReport(
        engine_id="e1",
        model="m",
        host="h",
        pid=1,
        state=state,
        capacity=4,
        in_flight=0,
        kv_use=None,
        started_at_s=0,
    )
    await client.sadd(keys.engines, "e1")
    await client.set(keys.engine("e1"), encode(written), px=60_000)
    return written


async def test_it_sees_what_an_engine_says(
    client: redis.asyncio.Redis, keys: Keys, view: EngineView
) -> None:
    written = await report(client, keys)
    await view.refresh()
    assert view.ready("m") == [written]
    assert view.of("other") == []


@pytest.mark.parametrize("state", [EngineState.LOADING, EngineState.DRAINING])
async def test_only_a_ready_engine_takes_work(
    client: redis.asyncio.Redis, keys: Keys, view: EngineView, died: list[str], state: EngineState
) -> None:
    written = await report(client, keys, state)
    await view.refresh()
    assert view.ready("m") == []
    assert view.of("m") == [written]
    assert died == []


async def test_an_engine_is_dead_after_several_looks_without_a_heartbeat(
    client: redis.asyncio.Redis,
    keys: Keys,
    view: EngineView,
    options: TransportOptions,
    died: list[str],
) -> None:
    await report(client, keys)
    await view.refresh()
    await client.delete(keys.engine("e1"))
    for _ in range(options.misses_until_dead - 1):
        await view.refresh()
        assert len(view.ready("m")) == 1
        assert died == []
    await view.refresh()
    assert view.ready("m") == []
    assert died == ["e1"]


async def test_a_heartbeat_that_comes_back_in_time_starts_the_count_again(
    client: redis.asyncio.Redis,
    keys: Keys,
    view: EngineView,
    options: TransportOptions,
    died: list[str],
) -> None:
    for _ in range(3):
        await report(client, keys)
        await view.refresh()
        await client.delete(keys.engine("e1"))
        for _ in range(options.misses_until_dead - 1):
            await view.refresh()
    assert died == []


async def test_silence_while_redis_was_away_is_nobodys_fault(
    client: redis.asyncio.Redis,
    keys: Keys,
    view: EngineView,
    options: TransportOptions,
    died: list[str],
) -> None:
    await report(client, keys)
    await view.refresh()
    for _ in range(3):
        await client.delete(keys.engine("e1"))
        for _ in range(options.misses_until_dead - 1):
            await view.refresh()
        view.forgive()
    assert died == []


async def test_an_engine_is_not_forgotten_with_the_set_of_ids(
    client: redis.asyncio.Redis, keys: Keys, view: EngineView, died: list[str]
) -> None:
    await report(client, keys)
    await view.refresh()
    await client.delete(keys.engines)
    await view.refresh()
    assert len(view.ready("m")) == 1


async def test_an_engine_that_says_that_it_failed_counts_as_dead_at_once(
    client: redis.asyncio.Redis, keys: Keys, view: EngineView, died: list[str]
) -> None:
    await report(client, keys, EngineState.FAILED)
    await view.refresh()
    assert died == ["e1"]
    assert len(view.of("m")) == 1


async def test_an_engine_of_another_version_is_not_there(
    client: redis.asyncio.Redis, keys: Keys, view: EngineView
) -> None:
    await client.sadd(keys.engines, "e1")
    await client.set(keys.engine("e1"), msgspec.msgpack.encode({"surprise": 1}))
    await view.refresh()
    assert list(view.all()) == []


async def test_an_engine_that_drains_says_so_from_the_second_look_on(
    client: redis.asyncio.Redis, keys: Keys, options: TransportOptions
) -> None:
    """What it took last has been told by then."""
    seen: list[str] = []
    view = EngineView(client, keys, options, seen.append, lambda: seen.append("drains"))
    for state in (EngineState.READY, EngineState.DRAINING):
        await report(client, keys, state)
        await view.refresh()
    assert seen == []
    await view.refresh()
    assert seen == ["drains"]
    await report(client, keys)
    await view.refresh()
    assert seen == ["drains"]
