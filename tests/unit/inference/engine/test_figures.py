"""What an engine's heartbeat says of its lanes."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
import redis.asyncio

from inference.backends.port import BackendStats
from inference.backends.scripted import ScriptedBackend
from inference.engine import drain as drain_module
from inference.engine import host as host_module
from inference.engine.host import EngineHost
from inference.engine.work import WorkItem
from inference.events import Failed, Finished, TextDelta
from inference.pace_stats import PaceStats
from inference.request import Lane
from inference.transport.figures import (
    PACE_BOUNDS_S,
    WAIT_BOUNDS_S,
    Attainment,
    EngineFigures,
    Histogram,
    LaneFigures,
)
from inference.transport.frames import EngineState, decode_report, encode
from inference.transport.keys import QUEUED_LANES, Keys
from inference.transport.options import TransportOptions
from tests.conftest import Eventually
from tests.engine_host import ENDLESS, Gateway, has, running
from tests.work_source import FakeSource, make_item

SAY_ABC = 'script: {"text": "a b c", "cached_tokens": 2}'


class Paced(ScriptedBackend):
    """Says that it keeps a pace: any first token is in time, none after it is."""

    def stats(self) -> BackendStats:
        pace = PaceStats(itl_target_s=0, ttft_target_s=1e9, idle_itl_s=0, idle_ttft_s=0)
        known = {"prefix_queries": 20, "prefix_hits": 10, "pace": pace}
        return msgspec.structs.replace(super().stats(), **known)


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "DRAIN_S", 0.1)
    monkeypatch.setattr(drain_module, "POLL_S", 0.02)


@pytest.fixture
async def gateway(client: redis.asyncio.Redis, options: TransportOptions) -> Gateway:
    made = Gateway(client, Keys(options.prefix))
    await made.live()
    return made


def of(host: EngineHost, lane: Lane) -> LaneFigures:
    """Return what the engine says of a lane."""
    return host.report().figures.lanes.get(lane, LaneFigures())


def in_lane(lane: Lane, item: WorkItem) -> WorkItem:
    """Return the item in a lane."""
    request = msgspec.structs.replace(item.request, lane=lane)
    return msgspec.structs.replace(item, request=request)


def times(histogram: Histogram) -> int:
    """Return how many times a histogram has."""
    return sum(histogram.counts)


@pytest.mark.parametrize("lane", [Lane.REALTIME, Lane.FLEX])
async def test_a_request_is_measured_when_it_is_over(
    options: TransportOptions, gateway: Gateway, eventually: Eventually, lane: Lane
) -> None:
    async with running(options) as (host, _):
        await gateway.ask(SAY_ABC, lane=lane)
        await gateway.see(has(Finished))
        await eventually(lambda: host.report().in_flight == 0)
        done = of(host, lane)
        assert (done.permits, done.cached_tokens, done.output_tokens) == (0, 2, 3)
        assert done.input_tokens > 2
        assert times(done.queue_time) == 1
        assert times(done.time_to_first_token) == times(done.time_per_output_token) == 1
        other = Lane.FLEX if lane is Lane.REALTIME else Lane.REALTIME
        assert of(host, other) == LaneFigures()


async def test_a_request_that_leaves_is_measured_as_far_as_it_came(
    options: TransportOptions, gateway: Gateway, eventually: Eventually
) -> None:
    async with running(options) as (host, _):
        await gateway.ask(ENDLESS)
        await gateway.see(has(TextDelta))
        assert of(host, Lane.REALTIME) == LaneFigures(permits=1)
        await gateway.cancel(host.engine_id)
        await eventually(lambda: host.report().in_flight == 0)
        done = of(host, Lane.REALTIME)
        assert done.output_tokens > 0
        assert times(done.time_to_first_token) == 1


async def test_what_was_never_this_engine_s_is_not_measured(
    options: TransportOptions, gateway: Gateway, client: redis.asyncio.Redis, eventually: Eventually
) -> None:
    keys = Keys(options.prefix)
    async with running(options) as (host, _):
        await client.delete(keys.gateway("g1"))
        await gateway.ask(SAY_ABC)
        # The engine finds nobody who waits for it, and takes it off the queue all the same.
        await eventually(lambda: host.report().in_flight == 0)
        await gateway.see(has(Failed))
        assert of(host, Lane.REALTIME) == LaneFigures()


async def test_work_is_measured_in_its_own_lane(
    options: TransportOptions, eventually: Eventually
) -> None:
    source = FakeSource(in_lane(Lane.BACKGROUND, make_item(SAY_ABC, urgent=True)))
    async with running(options, source=source) as (host, _):
        await eventually(lambda: bool(source.results))
        done = of(host, Lane.BACKGROUND)
        assert (done.cached_tokens, done.output_tokens) == (2, 3)
        assert times(done.time_to_first_token) == times(done.time_per_output_token) == 1
        assert done.queue_time == Histogram()
        assert of(host, Lane.FLEX) == LaneFigures()


async def test_an_engine_without_work_says_nothing_of_work(options: TransportOptions) -> None:
    async with running(options) as (host, _):
        assert set(host.report().figures.lanes) == {Lane.REALTIME, Lane.FLEX}


async def test_what_making_room_has_cost_is_counted(
    options: TransportOptions, gateway: Gateway, eventually: Eventually
) -> None:
    source = FakeSource(*(in_lane(Lane.BATCH, make_item(ENDLESS)) for _ in range(3)))
    async with running(options, source=source, capacity=4) as (host, _):
        # From then on the engine knows what each has used.
        await eventually(lambda: host._backend.stats().running == 3)
        assert of(host, Lane.BATCH).permits == 3
        for number in range(2):
            await gateway.ask(ENDLESS, request_id=f"r{number}")
        await eventually(lambda: of(host, Lane.REALTIME).permits == 2)
        figures = host.report().figures
        assert (figures.preemptions, figures.kept_permits) == (1, 1)
        stopped = of(host, Lane.BATCH)
        assert stopped.permits == 2
        assert figures.wasted_tokens == stopped.input_tokens + stopped.output_tokens > 0


async def test_realtime_is_compared_with_its_targets(
    options: TransportOptions, gateway: Gateway, eventually: Eventually
) -> None:
    async with running(options, backend=Paced) as (host, task):
        await gateway.ask(SAY_ABC)
        await gateway.see(has(Finished))
        await eventually(lambda: host.report().in_flight == 0)
        figures = host.report().figures
        assert figures.attained == Attainment(ttft_met=1, itl_missed=1)
        assert (figures.prefix_queries, figures.prefix_hits) == (20, 10)
        assert figures.pace is not None
        host.request_stop()
        await asyncio.wait([task])
        figures = host.report().figures
        assert (figures.prefix_queries, figures.prefix_hits, figures.pace) == (None, None, None)
        assert figures.attained == Attainment(ttft_met=1, itl_missed=1)


async def test_a_heartbeat_is_small_also_after_a_year(options: TransportOptions) -> None:
    many, long_s = 10**10, 12345678.9
    wait = Histogram((10**6,) * (len(WAIT_BOUNDS_S) + 1), long_s)
    pace = Histogram((10**6,) * (len(PACE_BOUNDS_S) + 1), long_s)
    queued = LaneFigures(256, many, many, many, wait, wait, pace)
    work = LaneFigures(256, many, many, many, Histogram(), wait, pace)
    figures = EngineFigures(
        lanes={lane: queued if lane in QUEUED_LANES else work for lane in Lane},
        preemptions=many,
        wasted_tokens=many,
        attained=Attainment(many, many, many, many),
        prefix_queries=many,
        prefix_hits=many,
        pace=PaceStats(
            itl_target_s=0.1,
            ttft_target_s=0.1,
            idle_itl_s=0.1,
            idle_ttft_s=0.1,
            row_steps=many,
            held_row_steps=many,
            evictions=many,
            recomputed_tokens=many,
        ),
    )
    async with running(options) as (host, _):
        report = msgspec.structs.replace(host.report(), figures=figures)
    assert len(encode(report)) < 2000


async def test_a_heartbeat_is_read_as_it_was_written_also_one_without_figures(
    options: TransportOptions, gateway: Gateway
) -> None:
    async with running(options, backend=Paced) as (host, _):
        await gateway.ask(SAY_ABC)
        await gateway.see(has(Finished))
        report = host.report()
    assert decode_report(encode(report)) == report
    fields = msgspec.msgpack.decode(encode(report))
    del fields["figures"]
    older = decode_report(msgspec.msgpack.encode(fields))
    assert (older.engine_id, older.state) == (report.engine_id, EngineState.READY)
