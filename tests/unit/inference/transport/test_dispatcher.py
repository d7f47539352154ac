"""The gateway's end, against an engine that the tests play by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import msgspec
import pytest
import redis.asyncio

from inference.errors import ErrorCode, TandemError
from inference.events import Event, Failed, Started, TextDelta
from inference.request import Lane
from inference.transport.dispatcher import Dispatcher
from inference.transport.frames import Accepted, Cancel, CancelReason, EngineState, QueueEntry
from inference.transport.keys import Keys
from inference.transport.options import TransportOptions
from inference.transport.run import Bell, Run
from tests.conftest import Eventually
from tests.streams import until
from tests.unit.inference.transport.played_engine import FINISHED, Engine, make_request


@pytest.fixture
async def engine(client: redis.asyncio.Redis, keys: Keys) -> Engine:
    made = Engine(client, keys, "e1")
    await made.live()
    return made


@pytest.fixture
def flex_engine(client: redis.asyncio.Redis, keys: Keys, engine: Engine) -> Engine:
    """Return the same engine as it reads its flex queue."""
    return Engine(client, keys, engine.engine_id, Lane.FLEX)


@pytest.fixture
async def dispatcher(options: TransportOptions, engine: Engine) -> AsyncIterator[Dispatcher]:
    made = Dispatcher(options)
    await made.start()
    yield made
    await made.stop()
    await made.close()


async def rest_of(run: Run) -> list[Event]:
    async with asyncio.timeout(20):
        return [event async for event in run]


async def test_a_request_is_queued_and_its_events_come_back(
    dispatcher: Dispatcher, engine: Engine
) -> None:
    run = await dispatcher.submit(make_request(), max_waiting=1)
    entry = await engine.take()
    assert entry.request == run.request
    events: list[Event] = [Started(1), TextDelta("a"), FINISHED]
    await engine.say(entry, 1, *events)
    assert await rest_of(run) == events
    assert dispatcher.in_flight == 0


async def test_without_an_engine_it_refuses_at_once(
    dispatcher: Dispatcher, engine: Engine, eventually: Eventually
) -> None:
    await engine.live(EngineState.FAILED)
    await eventually(lambda: not dispatcher.engines.ready("m"))
    with pytest.raises(TandemError, match=r"'m' .* failed \(because\)") as caught:
        await dispatcher.submit(make_request(), max_waiting=1)
    assert caught.value.code is ErrorCode.NO_ENGINE
    assert await engine.waiting() == []


async def test_a_full_queue_takes_no_more(dispatcher: Dispatcher, engine: Engine) -> None:
    await dispatcher.submit(make_request("r1"), max_waiting=1)
    with pytest.raises(TandemError) as caught:
        await dispatcher.submit(make_request("r2"), max_waiting=1)
    assert caught.value.code is ErrorCode.OVERLOADED
    assert caught.value.retry_after_s
    assert [entry.request.id for entry in await engine.waiting()] == ["r1"]
    assert dispatcher.in_flight == 1


async def test_what_belongs_to_an_answer_that_is_being_told_waits_however_many_wait(
    dispatcher: Dispatcher, engine: Engine
) -> None:
    await dispatcher.submit(make_request("r1"), max_waiting=1)
    await dispatcher.submit(make_request("r2"), max_waiting=None)
    assert len(await engine.waiting()) == 2


async def test_a_flex_request_without_a_place_in_time_is_refused_and_leaves_nothing(
    dispatcher: Dispatcher, flex_engine: Engine
) -> None:
    run = await dispatcher.submit(make_request(lane=Lane.FLEX), max_waiting=1, wait_s=0.02)
    (failed,) = await rest_of(run)
    assert isinstance(failed, Failed)
    assert failed.code is ErrorCode.RESOURCE_UNAVAILABLE
    assert failed.message.startswith("Resource Unavailable: ")
    assert dispatcher.in_flight == 0
    await until(flex_engine.has_none_waiting)


async def test_a_flex_request_with_a_place_in_time_takes_as_long_as_it_takes(
    dispatcher: Dispatcher, flex_engine: Engine
) -> None:
    run = await dispatcher.submit(make_request(lane=Lane.FLEX), max_waiting=1, wait_s=60)
    entry = await flex_engine.take()
    await flex_engine.say(entry, 1, Started(1))
    assert await run.next() == [Started(1)]
    _, patience = run.timers
    # Its time comes.
    patience._run()
    assert not run.ended
    await flex_engine.say(entry, 2, FINISHED)
    assert await rest_of(run) == [FINISHED]


async def test_a_full_flex_queue_is_a_want_of_resources(
    dispatcher: Dispatcher, flex_engine: Engine
) -> None:
    await dispatcher.submit(make_request("r1", lane=Lane.FLEX), max_waiting=1)
    with pytest.raises(TandemError) as caught:
        await dispatcher.submit(make_request("r2", lane=Lane.FLEX), max_waiting=1)
    assert caught.value.code is ErrorCode.RESOURCE_UNAVAILABLE


async def test_several_runs_can_ring_one_bell(dispatcher: Dispatcher, engine: Engine) -> None:
    bell = Bell()
    runs = [
        await dispatcher.submit(make_request(name), max_waiting=2, bell=bell)
        for name in ("r1", "r2")
    ]
    waiting = asyncio.create_task(bell.wait())
    await engine.take()
    await engine.say(await engine.take(), 1, Started(1))
    async with asyncio.timeout(20):
        await waiting
    assert [run.take() for run in runs] == [[], [Started(1)]]


async def test_closing_takes_a_waiting_request_off_the_queue(
    dispatcher: Dispatcher, engine: Engine
) -> None:
    run = await dispatcher.submit(make_request(), max_waiting=1)
    run.close()
    await until(engine.has_none_waiting)


async def test_closing_cancels_a_running_request(dispatcher: Dispatcher, engine: Engine) -> None:
    run = await dispatcher.submit(make_request(), max_waiting=1)
    entry = await engine.take()
    await engine.say(entry, 1, Started(1))
    await run.next()
    run.close()
    assert await engine.cancelled() == Cancel(request_id="r1", attempt=0)


async def test_a_caller_that_leaves_while_its_request_is_queued_leaves_nothing(
    dispatcher: Dispatcher, engine: Engine
) -> None:
    # Cancelled after each number of turns of the loop: some of them are in the middle of a write.
    for turns in range(40):
        task = asyncio.create_task(dispatcher.submit(make_request(f"r{turns}"), max_waiting=-1))
        for _ in range(turns):
            await asyncio.sleep(0)
        if not task.done():
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            task.result().close()
    await until(engine.has_none_waiting)
    assert dispatcher.in_flight == 0


async def test_a_request_that_nobody_waits_for_is_cancelled_when_it_is_taken(
    dispatcher: Dispatcher, engine: Engine
) -> None:
    entry = QueueEntry(gateway_id=dispatcher.gateway_id, attempt=0, request=make_request("gone"))
    await engine.say(entry, 0, Accepted("e1"))
    assert await engine.cancelled() == Cancel(request_id="gone", attempt=0)


async def test_what_takes_too_long_is_cancelled(dispatcher: Dispatcher, engine: Engine) -> None:
    run = await dispatcher.submit(make_request(timeout_s=0.3), max_waiting=1)
    await engine.take()
    (event,) = await rest_of(run)
    assert isinstance(event, Failed)
    assert event.code is ErrorCode.TIMEOUT
    assert await engine.cancelled() == Cancel(
        request_id="r1", attempt=0, reason=CancelReason.TIMEOUT
    )


async def test_another_engine_gets_what_a_dead_one_had_not_begun(
    dispatcher: Dispatcher,
    client: redis.asyncio.Redis,
    keys: Keys,
    engine: Engine,
    eventually: Eventually,
) -> None:
    other = Engine(client, keys, "e2")
    await other.live()
    await eventually(lambda: len(dispatcher.engines.ready("m")) == 2)
    run = await dispatcher.submit(make_request(), max_waiting=1)
    await engine.say(await engine.take(), 1, Started(1))
    await eventually(lambda: run.engine_id == "e1")
    await engine.die()
    second = await other.take()
    assert second.attempt == 1
    await other.say(second, 1, Started(1), TextDelta("a"), FINISHED)
    assert await rest_of(run) == [Started(1), TextDelta("a"), FINISHED]


async def test_a_stream_that_loses_its_engine_ends(
    dispatcher: Dispatcher, engine: Engine, eventually: Eventually
) -> None:
    run = await dispatcher.submit(make_request(), max_waiting=1)
    await engine.say(await engine.take(), 1, Started(1), TextDelta("a"))
    await eventually(lambda: run.text_sent)
    await engine.die()
    last = (await rest_of(run))[-1]
    assert isinstance(last, Failed)
    assert last.code is ErrorCode.ENGINE_LOST


async def test_a_request_that_waits_for_the_last_engine_to_die_ends(
    dispatcher: Dispatcher, engine: Engine
) -> None:
    run = await dispatcher.submit(make_request(), max_waiting=1)
    await engine.die()
    (event,) = await rest_of(run)
    assert isinstance(event, Failed)
    assert event.code is ErrorCode.NO_ENGINE


async def test_when_redis_forgets_everything_a_request_without_text_starts_again(
    dispatcher: Dispatcher, client: redis.asyncio.Redis, keys: Keys, engine: Engine
) -> None:
    run = await dispatcher.submit(make_request(), max_waiting=1)
    first = await engine.take()
    await engine.say(first, 1, Started(1))
    assert await run.next() == [Started(1)]
    await client.delete(keys.reply(dispatcher.gateway_id))
    second = await engine.take()
    assert second.attempt == 1
    assert await engine.cancelled() == Cancel(
        request_id="r1", attempt=0, reason=CancelReason.SUPERSEDED
    )
    await engine.say(second, 1, Started(1), FINISHED)
    assert await rest_of(run) == [FINISHED]


async def test_when_redis_forgets_everything_a_stream_ends_and_its_engine_stops(
    dispatcher: Dispatcher,
    client: redis.asyncio.Redis,
    keys: Keys,
    engine: Engine,
    eventually: Eventually,
) -> None:
    run = await dispatcher.submit(make_request(), max_waiting=1)
    await engine.say(await engine.take(), 1, Started(1), TextDelta("a"))
    await eventually(lambda: run.text_sent)
    await client.delete(keys.reply(dispatcher.gateway_id))
    assert isinstance((await rest_of(run))[-1], Failed)
    assert await engine.cancelled() == Cancel(
        request_id="r1", attempt=0, reason=CancelReason.SUPERSEDED
    )


async def test_whoever_queues_a_request_counts_as_alive(
    dispatcher: Dispatcher, client: redis.asyncio.Redis, keys: Keys, engine: Engine
) -> None:
    await client.delete(keys.gateway(dispatcher.gateway_id))
    await dispatcher.submit(make_request(), max_waiting=1)
    assert await client.exists(keys.gateway(dispatcher.gateway_id))


async def test_a_frame_of_another_version_harms_nobody(
    dispatcher: Dispatcher, client: redis.asyncio.Redis, keys: Keys, engine: Engine
) -> None:
    run = await dispatcher.submit(make_request(), max_waiting=1)
    await client.xadd(keys.reply(dispatcher.gateway_id), {"f": b"\xc1"})
    await engine.say(await engine.take(), 1, FINISHED)
    assert await rest_of(run) == [FINISHED]


async def test_stopping_ends_every_run_and_leaves_nothing(
    options: TransportOptions, client: redis.asyncio.Redis, keys: Keys, engine: Engine
) -> None:
    dispatcher = Dispatcher(options)
    await dispatcher.start()
    run = await dispatcher.submit(make_request(), max_waiting=1)
    await dispatcher.stop()
    await dispatcher.close()
    (event,) = await rest_of(run)
    assert isinstance(event, Failed)
    assert event.code is ErrorCode.UNAVAILABLE
    gateway_id = dispatcher.gateway_id
    assert not await client.exists(keys.reply(gateway_id), keys.gateway(gateway_id))


async def test_a_redis_that_cannot_be_reached_is_waited_for_and_then_reported(
    options: TransportOptions, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise ConnectionRefusedError

    monkeypatch.setattr(dispatcher.courier, "run", fail)
    with pytest.raises(TandemError) as caught:
        await dispatcher.submit(make_request(), max_waiting=1)
    assert caught.value.code is ErrorCode.UNAVAILABLE
    assert dispatcher.in_flight == 0


async def test_a_number_that_cannot_travel_is_refused(
    options: TransportOptions, dispatcher: Dispatcher, engine: Engine
) -> None:
    request = msgspec.structs.replace(make_request(), output_schema={"maxLength": 10**30})
    with pytest.raises(TandemError, match="64 bits") as caught:
        await dispatcher.submit(request, max_waiting=1)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert dispatcher.in_flight == 0


@pytest.mark.parametrize("away", [True, False])
async def test_engines_are_given_time_after_redis_was_away_or_has_forgotten(
    options: TransportOptions,
    client: redis.asyncio.Redis,
    keys: Keys,
    dispatcher: Dispatcher,
    monkeypatch: pytest.MonkeyPatch,
    away: bool,
) -> None:
    forgiven = asyncio.Event()
    monkeypatch.setattr(dispatcher.engines, "forgive", forgiven.set)
    if away:

        async def fail() -> None:
            raise ConnectionRefusedError

        monkeypatch.setattr(dispatcher.engines, "refresh", fail)
    else:
        await client.delete(keys.reply(dispatcher.gateway_id))
    async with asyncio.timeout(20):
        await forgiven.wait()


async def test_attempts_count_on_from_those_at_another_model(
    dispatcher: Dispatcher, engine: Engine
) -> None:
    run = await dispatcher.submit(make_request(), max_waiting=1, attempt=1)
    entry = await engine.take()
    assert entry.attempt == 1
    await engine.say(entry, 1, Started(1), TextDelta("a"), FINISHED)
    assert await rest_of(run) == [Started(1), TextDelta("a"), FINISHED]


async def test_a_gateway_that_stops_sends_nothing_more(
    options: TransportOptions, engine: Engine
) -> None:
    stopped = Dispatcher(options)
    await stopped.start()
    run = await stopped.submit(make_request(), max_waiting=1)
    await stopped.stop()
    assert isinstance(run.end, Failed)
    with pytest.raises(TandemError, match="shutting down") as caught:
        await stopped.submit(make_request("r2"), max_waiting=None)
    assert caught.value.code is ErrorCode.UNAVAILABLE
    await stopped.close()


async def test_what_waits_for_an_engine_that_is_drained_is_refused_and_what_it_runs_is_not(
    dispatcher: Dispatcher, engine: Engine
) -> None:
    served = await dispatcher.submit(make_request("r1"), max_waiting=9)
    entry = await engine.take()
    await engine.say(entry, 1, Started(1), TextDelta("a"))
    waiting = await dispatcher.submit(make_request("r2"), max_waiting=9)
    await engine.live(EngineState.DRAINING)

    (failed,) = await rest_of(waiting)
    assert isinstance(failed, Failed)
    assert failed.code is ErrorCode.NO_ENGINE
    await until(engine.has_none_waiting)

    await engine.say(entry, 3, FINISHED)
    assert (await rest_of(served))[-1] == FINISHED


async def test_what_waits_for_a_model_with_another_engine_goes_on_waiting(
    dispatcher: Dispatcher, engine: Engine, client: redis.asyncio.Redis, keys: Keys
) -> None:
    other = Engine(client, keys, "e2")
    await other.live()
    run = await dispatcher.submit(make_request(), max_waiting=9)
    await engine.live(EngineState.DRAINING)
    await until(partial(_is_seen_draining, dispatcher))
    await dispatcher.engines.refresh()
    entry = await other.take()
    await other.say(entry, 1, FINISHED)
    assert await rest_of(run) == [FINISHED]


async def _is_seen_draining(dispatcher: Dispatcher) -> bool:
    states = {report.engine_id: report.state for report in dispatcher.engines.of("m")}
    return states == {"e1": EngineState.DRAINING, "e2": EngineState.READY}
