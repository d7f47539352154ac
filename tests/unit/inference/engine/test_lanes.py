"""What an engine's lanes leave each other."""

from __future__ import annotations

import asyncio

import pytest
import redis.asyncio

from inference.engine import drain as drain_module
from inference.engine import host as host_module
from inference.engine.host import EngineHost
from inference.events import Finished, TextDelta
from inference.request import Lane
from inference.transport.frames import Accepted, EngineState, Frame
from inference.transport.keys import Keys
from inference.transport.options import TransportOptions
from inference.transport.records import Ending
from tests.conftest import Eventually
from tests.engine_host import ENDLESS, Gateway, has, running
from tests.streams import until
from tests.work_source import FakeSource, make_item


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "DRAIN_S", 0.1)
    monkeypatch.setattr(drain_module, "POLL_S", 0.02)
    monkeypatch.setattr(drain_module, "LEASE_RENEW_S", 0.05)


@pytest.fixture
async def gateway(client: redis.asyncio.Redis, options: TransportOptions) -> Gateway:
    made = Gateway(client, Keys(options.prefix))
    await made.live()
    return made


def accepted(frames: list[Frame]) -> set[str]:
    return {frame.request_id for frame in frames if isinstance(frame.body, Accepted)}


async def test_a_flex_request_is_answered(options: TransportOptions, gateway: Gateway) -> None:
    async with running(options):
        await gateway.ask(lane=Lane.FLEX)
        await gateway.see(has(Finished))


async def test_flex_requests_leave_room_for_realtime(
    options: TransportOptions, gateway: Gateway, client: redis.asyncio.Redis
) -> None:
    queue = Keys(options.prefix).queue("model-under-test", Lane.FLEX)
    async with running(options, capacity=4) as (host, _):
        for number in range(5):
            await gateway.ask(ENDLESS, request_id=f"flex-{number}", lane=Lane.FLEX)
        await gateway.see(lambda frames: len(accepted(frames)) == 3)
        await gateway.ask(request_id="realtime")
        await gateway.see(lambda frames: "realtime" in accepted(frames))
        assert await client.xlen(queue) == 2
        assert host.report().capacity == 4


async def test_a_flex_request_that_waits_takes_the_next_place(
    options: TransportOptions, gateway: Gateway
) -> None:
    async with running(options, capacity=2) as (host, _):
        await gateway.ask(ENDLESS, lane=Lane.FLEX)
        await gateway.see(has(TextDelta))
        await gateway.ask(request_id="next", lane=Lane.FLEX)
        await gateway.cancel(host.engine_id)
        await gateway.see(lambda frames: "next" in accepted(frames))


async def test_a_flex_request_that_comes_twice_runs_once(
    options: TransportOptions, gateway: Gateway, client: redis.asyncio.Redis
) -> None:
    queue = Keys(options.prefix).queue("model-under-test", Lane.FLEX)
    async with running(options):
        await gateway.ask(ENDLESS, lane=Lane.FLEX)
        await gateway.see(has(TextDelta))
        await gateway.ask(ENDLESS, lane=Lane.FLEX)

        async def is_dropped() -> bool:
            return await client.xlen(queue) == 0

        await until(is_dropped)
        frames = await gateway.see(lambda _: True)
        assert sum(isinstance(frame.body, Accepted) for frame in frames) == 1


async def test_flex_goes_before_work_that_waits(
    options: TransportOptions, gateway: Gateway, eventually: Eventually
) -> None:
    source = FakeSource(*(make_item(ENDLESS) for _ in range(10)))
    async with running(options, capacity=2, source=source) as (host, _):
        await eventually(lambda: host.report().work_in_flight == 1)
        await gateway.ask(lane=Lane.FLEX)
        # It waits in line before the work does.
        await eventually(
            lambda: [each.lane for each in host._admission._waiting][:1] == [Lane.FLEX]
        )
        source.broken_off = set(source.taken)
        await gateway.see(has(Finished))


def asked_of_work(host: EngineHost) -> list[bool]:
    """Return whether work gave up a place, for each time that it is asked from now on."""
    asked: list[bool] = []
    reclaim = host._admission.reclaim

    def reclaim_and_note() -> bool:
        asked.append(reclaim())
        return asked[-1]

    host._admission.reclaim = reclaim_and_note
    return asked


async def test_work_makes_room_once_a_request_has_come_and_not_before(
    options: TransportOptions, gateway: Gateway, eventually: Eventually
) -> None:
    item = make_item(ENDLESS)
    source = FakeSource(item)
    async with running(options, capacity=2, source=source) as (host, _):
        await eventually(lambda: host.report().work_in_flight == 1)
        asked = asked_of_work(host)
        await gateway.ask(ENDLESS)
        await gateway.see(has(TextDelta))
        # Every place is taken, and nobody waits.
        renewals = len(source.renewed)
        await eventually(lambda: len(source.renewed) > renewals + 5)
        assert host.report().work_in_flight == 1
        assert asked == []
        await gateway.ask(ENDLESS, request_id="next")
        await gateway.see(lambda frames: "next" in accepted(frames))
        assert asked == [True]
        await eventually(lambda: source.given_back == [item.request.id])
        assert source.ending_of(item) is None


async def test_each_request_that_comes_is_made_room_for(
    options: TransportOptions, gateway: Gateway, eventually: Eventually
) -> None:
    source = FakeSource(*(make_item(ENDLESS) for _ in range(10)))
    async with running(options, capacity=8, source=source) as (host, _):
        await eventually(lambda: host.report().work_in_flight == 7)
        asked = asked_of_work(host)
        for number in range(4):
            await gateway.ask(ENDLESS, request_id=f"r{number}")
        await gateway.see(lambda frames: len(accepted(frames)) == 4)
        assert asked == [True] * 3
        assert host.report().work_in_flight == 4


async def test_work_that_ends_by_itself_is_enough_where_none_may_be_stopped(
    options: TransportOptions, gateway: Gateway, eventually: Eventually
) -> None:
    item = make_item(ENDLESS, urgent=True)
    source = FakeSource(item)
    async with running(options, capacity=2, source=source) as (host, _):
        await eventually(lambda: host.report().work_in_flight == 1)
        asked = asked_of_work(host)
        await gateway.ask(ENDLESS)
        await gateway.see(has(TextDelta))
        await gateway.ask(request_id="next")
        await eventually(lambda: asked == [False])
        source.broken_off = {item.request.id}
        await gateway.see(lambda frames: "next" in accepted(frames))


async def test_work_is_asked_for_nothing_while_a_place_is_free(
    options: TransportOptions, gateway: Gateway, eventually: Eventually
) -> None:
    source = FakeSource(*(make_item(ENDLESS) for _ in range(2)))
    async with running(options, capacity=8, source=source) as (host, _):
        await eventually(lambda: host.report().work_in_flight == 2)
        asked = asked_of_work(host)
        for number in range(5):
            await gateway.ask(ENDLESS, request_id=f"r{number}")
        await gateway.see(lambda frames: len(accepted(frames)) == 5)
        assert asked == []


async def test_an_engine_with_one_place_serves_every_lane_in_turn(
    options: TransportOptions, gateway: Gateway, eventually: Eventually
) -> None:
    items = [make_item() for _ in range(3)]
    source = FakeSource()
    async with running(options, capacity=1, source=source) as (host, _):
        await eventually(lambda: host.report().state is EngineState.READY)
        source.add(*items)
        for number, lane in enumerate([Lane.REALTIME, Lane.FLEX] * 3):
            await gateway.ask(request_id=f"r{number}", lane=lane)
        await gateway.see(lambda frames: len(accepted(frames)) == 6)
        await eventually(lambda: len(source.results) == 3)


async def test_work_runs_in_an_engine_that_waits_for_requests(
    options: TransportOptions, gateway: Gateway, eventually: Eventually
) -> None:
    item = make_item()
    source = FakeSource(item)
    async with running(options, capacity=1, source=source):
        await eventually(lambda: source.ending_of(item) is Ending.FINISHED)


async def test_told_to_stop_it_ends_the_work_that_is_nearly_done(
    options: TransportOptions, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_module, "DRAIN_S", 20)
    item = make_item('script: {"tokens": 10, "token_delay_s": 0.02}')
    source = FakeSource(item, *(make_item() for _ in range(3)))
    async with running(options, capacity=2, source=source) as (host, _):
        await eventually(lambda: host.report().work_in_flight == 1)
        host.request_stop()
        await eventually(lambda: host.report().state is EngineState.DRAINING)
    assert source.ending_of(item) is Ending.FINISHED
    assert len(source.pending) == 3
    assert source.closed


async def test_told_to_stop_it_gives_back_what_takes_too_long(
    options: TransportOptions, eventually: Eventually
) -> None:
    item = make_item(ENDLESS)
    source = FakeSource(item)
    async with running(options, source=source) as (host, _):
        await eventually(lambda: host.report().work_in_flight == 1)
    assert source.pending == [item]
    assert source.closed


async def test_a_hung_engine_loses_its_work(
    options: TransportOptions, eventually: Eventually
) -> None:
    item = make_item('script: {"hang_at": 1}')
    source = FakeSource(item)
    async with running(options, stall_after_s=0.3, source=source) as (host, task):
        async with asyncio.timeout(20):
            assert not await task
        assert host.report().state is EngineState.FAILED
    assert source.ending_of(item) is Ending.ENGINE_LOST


async def test_an_engine_whose_source_is_broken_by_a_bug_still_serves(
    options: TransportOptions, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = FakeSource()
    monkeypatch.setattr(source, "claim", lambda _limit: 1 / 0)
    async with running(options, source=source):
        await gateway.ask()
        await gateway.see(has(Finished))
