"""What an engine does when an operator tells it something, with a gateway played by hand."""

from __future__ import annotations

import asyncio

import pytest
import redis.asyncio

from inference.engine import host as host_module
from inference.events import Finished, TextDelta
from inference.request import Lane
from inference.transport.frames import EngineState, Order
from inference.transport.keys import Keys
from inference.transport.options import TransportOptions
from inference.transport.records import Ending
from tests.conftest import Eventually
from tests.engine_host import ENDLESS, Gateway, has, running
from tests.work_source import FakeSource, make_item

SHORT = 'script: {"tokens": 20, "token_delay_s": 0.02}'


@pytest.fixture(autouse=True)
def _short_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "DRAIN_S", 0.1)


@pytest.fixture
async def gateway(client: redis.asyncio.Redis, options: TransportOptions) -> Gateway:
    made = Gateway(client, Keys(options.prefix))
    await made.live()
    return made


async def tell(
    client: redis.asyncio.Redis, options: TransportOptions, engine_id: str, order: Order
) -> None:
    await client.xadd(Keys(options.prefix).control(engine_id), {"o": order.value})


@pytest.mark.parametrize("capacity", [1, 4])
async def test_drained_it_ends_what_it_runs_and_leaves_the_rest_until_it_is_resumed(
    options: TransportOptions,
    gateway: Gateway,
    client: redis.asyncio.Redis,
    eventually: Eventually,
    capacity: int,
) -> None:
    queue = Keys(options.prefix).queue("model-under-test", Lane.REALTIME)
    async with running(options, capacity=capacity) as (host, task):
        await gateway.ask(SHORT)
        await gateway.see(has(TextDelta))
        await tell(client, options, host.engine_id, Order.DRAIN)
        await eventually(lambda: host.report().state is EngineState.DRAINING)
        await gateway.see(has(Finished))
        # One that came in the very moment of the order may be taken still; the others are not.
        for number in range(3):
            await gateway.ask(request_id=f"later-{number}")
        await eventually(lambda: host.report().in_flight == 0)
        assert await client.xlen(queue) >= 2
        assert not task.done()

        await tell(client, options, host.engine_id, Order.RESUME)
        await eventually(lambda: host.report().state is EngineState.READY)

        def all_ended() -> bool:
            ended = [frame for frame in gateway.frames if isinstance(frame.body, Finished)]
            return len(ended) == 4

        await gateway.see(lambda _: all_ended())


async def test_drained_it_takes_no_more_work_until_it_is_resumed(
    options: TransportOptions, client: redis.asyncio.Redis, eventually: Eventually
) -> None:
    first, later = make_item(SHORT), make_item()
    source = FakeSource(first)
    async with running(options, source=source) as (host, _):
        await eventually(lambda: host.report().work_in_flight == 1)
        await tell(client, options, host.engine_id, Order.DRAIN)
        await eventually(lambda: host.report().state is EngineState.DRAINING)
        source.add(later)
        await eventually(lambda: source.ending_of(first) is Ending.FINISHED)
        assert source.pending == [later]
        await tell(client, options, host.engine_id, Order.RESUME)
        await eventually(lambda: source.ending_of(later) is Ending.FINISHED)


async def test_told_to_reload_it_ends_what_callers_wait_for_gives_work_back_and_ends(
    options: TransportOptions,
    gateway: Gateway,
    client: redis.asyncio.Redis,
    eventually: Eventually,
) -> None:
    item = make_item(ENDLESS)
    source = FakeSource(item)
    async with running(options, source=source) as (host, task):
        await eventually(lambda: host.report().work_in_flight == 1)
        await gateway.ask(SHORT)
        await gateway.see(has(TextDelta))
        await tell(client, options, host.engine_id, Order.RELOAD)
        async with asyncio.timeout(20):
            # As one that failed: whoever started it starts it anew.
            assert not await task
        await gateway.see(has(Finished))
    assert source.pending == [item]
    assert source.given_back
    assert source.closed


async def test_after_a_reload_no_other_order_counts(
    options: TransportOptions,
    gateway: Gateway,
    client: redis.asyncio.Redis,
    eventually: Eventually,
) -> None:
    async with running(options) as (host, task):
        await gateway.ask(SHORT)
        await gateway.see(has(TextDelta))
        for order in (Order.RELOAD, Order.RESUME):
            await tell(client, options, host.engine_id, order)
        await eventually(lambda: host.report().state is EngineState.DRAINING)
        async with asyncio.timeout(20):
            assert not await task


async def test_an_order_that_came_while_it_loaded_is_carried_out_once_it_serves(
    options: TransportOptions, client: redis.asyncio.Redis, eventually: Eventually
) -> None:
    async with running(options) as (host, _):
        await tell(client, options, host.engine_id, Order.DRAIN)
        await eventually(lambda: host.report().state is EngineState.DRAINING)


async def test_a_drained_engine_that_is_told_to_stop_stops(
    options: TransportOptions, client: redis.asyncio.Redis, eventually: Eventually
) -> None:
    async with running(options) as (host, task):
        await tell(client, options, host.engine_id, Order.DRAIN)
        await eventually(lambda: host.report().state is EngineState.DRAINING)
        host.request_stop()
        assert await task
