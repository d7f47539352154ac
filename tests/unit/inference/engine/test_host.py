"""The host of an engine, with a scripted backend and a gateway that the tests play by hand."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import pytest
import redis.asyncio

from inference.backends.port import Tally
from inference.backends.scripted import ScriptedBackend
from inference.engine import host as host_module
from inference.errors import ErrorCode
from inference.events import Event, Failed, Finished, Started, TextDelta
from inference.request import GenerationRequest, Lane
from inference.transport.frames import (
    Accepted,
    CancelReason,
    EngineState,
)
from inference.transport.keys import Keys
from inference.transport.options import TransportOptions
from inference.transport.records import Completed, Ending, decode_entry, decode_record
from tests.conftest import Eventually
from tests.engine_host import ENDLESS, OWNER, Gateway, has, running
from tests.streams import entries_of, until


async def completed(client: redis.asyncio.Redis, options: TransportOptions) -> list[Completed]:
    """Wait for records, and return all that have come."""

    async def look() -> list[Completed]:
        entries = await entries_of(client, Keys(options.prefix).records)
        records = [
            decode_record(record) for _, fields in entries for record in decode_entry(fields[b"r"])
        ]
        return [record for record in records if isinstance(record, Completed)]

    return await until(look)


@pytest.fixture(autouse=True)
def _short_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "DRAIN_S", 0.1)


@pytest.fixture
async def gateway(client: redis.asyncio.Redis, options: TransportOptions) -> Gateway:
    made = Gateway(client, Keys(options.prefix))
    await made.live()
    return made


async def test_it_takes_a_request_and_numbers_its_frames(
    options: TransportOptions, gateway: Gateway
) -> None:
    async with running(options) as (host, _):
        await gateway.ask('script: {"text": "a b"}')
        frames = await gateway.see(has(Finished))
    assert [frame.seq for frame in frames] == list(range(len(frames)))
    assert frames[0].body == Accepted(host.engine_id)
    text = [frame.body.text for frame in frames if isinstance(frame.body, TextDelta)]
    assert "".join(text) == "a b"
    assert host.report().in_flight == 0


async def test_it_takes_no_more_than_it_can_run(
    options: TransportOptions, gateway: Gateway, client: redis.asyncio.Redis
) -> None:
    queue = Keys(options.prefix).queue("model-under-test", Lane.REALTIME)
    async with running(options, capacity=2) as (host, _):
        for number in range(3):
            await gateway.ask(ENDLESS, request_id=f"r{number}")

        async def two_are_off_the_queue() -> bool:
            # An entry leaves it a moment after its request counts as running.
            return await client.xlen(queue) == 1

        await until(two_are_off_the_queue)
        assert host.report().in_flight == 2


async def test_a_cancel_stops_a_request_and_frees_its_place(
    options: TransportOptions, gateway: Gateway, eventually: Eventually
) -> None:
    async with running(options, capacity=1) as (host, _):
        await gateway.ask(ENDLESS)
        await gateway.see(has(TextDelta))
        await gateway.cancel(host.engine_id)
        await eventually(lambda: host.report().in_flight == 0)
        await gateway.ask(attempt=1)
        await gateway.see(has(Finished, attempt=1))


async def test_a_cancel_of_another_attempt_stops_nothing(
    options: TransportOptions, gateway: Gateway
) -> None:
    async with running(options) as (host, _):
        await gateway.ask('script: {"tokens": 40, "token_delay_s": 0.02}', attempt=1)
        await gateway.see(has(TextDelta, attempt=1))
        await gateway.cancel(host.engine_id, attempt=0)
        await gateway.see(has(Finished, attempt=1))


async def test_a_request_that_comes_twice_runs_once(
    options: TransportOptions, gateway: Gateway
) -> None:
    async with running(options):
        await gateway.ask(ENDLESS)
        await gateway.see(has(TextDelta))
        await gateway.ask(ENDLESS)
        await gateway.ask(request_id="later")
        await gateway.see(lambda frames: any(frame.request_id == "later" for frame in frames))
        accepted = [
            frame
            for frame in gateway.frames
            if frame.request_id == "r1" and isinstance(frame.body, Accepted)
        ]
        assert len(accepted) == 1


async def test_a_new_attempt_takes_the_place_of_the_one_before(
    options: TransportOptions, gateway: Gateway, eventually: Eventually
) -> None:
    async with running(options) as (host, _):
        await gateway.ask(ENDLESS)
        await gateway.see(has(TextDelta))
        await gateway.ask(attempt=1)
        await gateway.see(has(Finished, attempt=1))
        await eventually(lambda: host.report().in_flight == 0)


async def test_the_requests_of_a_gateway_that_is_gone_are_dropped(
    options: TransportOptions, gateway: Gateway, client: redis.asyncio.Redis, eventually: Eventually
) -> None:
    async with running(options) as (host, _):
        await gateway.ask(ENDLESS)
        await gateway.see(has(TextDelta))
        await client.delete(Keys(options.prefix).gateway("g1"))
        await eventually(lambda: host.report().in_flight == 0)
        assert host.report().state is EngineState.READY


async def test_the_requests_of_a_gateway_without_a_reply_stream_are_dropped(
    options: TransportOptions, gateway: Gateway, client: redis.asyncio.Redis, eventually: Eventually
) -> None:
    async with running(options) as (host, _):
        await gateway.ask(ENDLESS)
        await gateway.see(has(TextDelta))
        await client.delete(Keys(options.prefix).reply("g1"))
        await eventually(lambda: host.report().in_flight == 0)


async def test_told_to_stop_it_finishes_what_it_runs(
    options: TransportOptions, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_module, "DRAIN_S", 20)
    async with running(options) as (host, task):
        await gateway.ask('script: {"tokens": 20, "token_delay_s": 0.02}')
        await gateway.see(has(TextDelta))
        host.request_stop()
        assert await task
        await gateway.see(has(Finished))


async def test_told_to_stop_it_hands_back_what_takes_too_long(
    options: TransportOptions, gateway: Gateway
) -> None:
    async with running(options) as (host, task):
        await gateway.ask(ENDLESS)
        await gateway.see(has(TextDelta))
        host.request_stop()
        assert await task
        last = (await gateway.see(has(Failed)))[-1]
    assert isinstance(last.body, Failed)
    assert last.body.code is ErrorCode.ENGINE_LOST


async def test_a_hung_engine_is_given_up(options: TransportOptions, gateway: Gateway) -> None:
    async with running(options, stall_after_s=0.3) as (host, task):
        await gateway.ask('script: {"hang_at": 1}')
        await gateway.see(has(Failed))
        assert not await task
        assert host.report().state is EngineState.FAILED
        assert "no progress" in host.report().reason


async def test_an_idle_engine_is_not_taken_for_a_hung_one(
    options: TransportOptions, gateway: Gateway, eventually: Eventually
) -> None:
    async with running(options, stall_after_s=0.1) as (host, task):
        await eventually(lambda: host.report().state is EngineState.READY)
        with contextlib.suppress(TimeoutError):
            # Long enough for many looks.
            await asyncio.wait_for(asyncio.shield(task), 0.5)
        assert host.report().state is EngineState.READY


async def test_an_engine_that_cannot_load_says_why_until_it_is_stopped(
    options: TransportOptions, eventually: Eventually
) -> None:
    async with running(options, engine_options={"nonsense": 1}) as (host, task):
        await eventually(lambda: host.report().state is EngineState.FAILED)
        assert "nonsense" in host.report().reason
        assert not task.done()


async def test_an_engine_that_cannot_load_is_given_up_after_a_while(
    options: TransportOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_module, "LINGER_S", 0.01)
    async with running(options, engine_options={"nonsense": 1}) as (_, task):
        assert not await task


async def test_nothing_of_a_stopped_engine_is_left(
    options: TransportOptions, gateway: Gateway, client: redis.asyncio.Redis
) -> None:
    keys = Keys(options.prefix)
    async with running(options) as (host, _):
        await gateway.ask()
        await gateway.see(has(Finished))
        await gateway.cancel(host.engine_id)
    assert not await client.exists(
        keys.engines, keys.engine(host.engine_id), keys.control(host.engine_id)
    )


class BrokenBackend(ScriptedBackend):
    """Breaks the port's promise to let nothing out but events."""

    async def generate(
        self, request: GenerationRequest, tally: Tally | None = None
    ) -> AsyncGenerator[Event]:
        yield Started(prompt_tokens=1)
        raise ZeroDivisionError

    async def count(self, request: GenerationRequest) -> int:
        raise ZeroDivisionError


async def test_a_bug_in_a_backend_ends_its_request_and_nothing_else(
    options: TransportOptions, gateway: Gateway
) -> None:
    async with running(options, backend=BrokenBackend) as (host, task):
        await gateway.ask()
        frames = await gateway.see(has(Failed))
        await gateway.ask(request_id="r2", queue=Keys(options.prefix).counts("model-under-test"))
        frames = await gateway.see(lambda seen: any(f.request_id == "r2" and f.seq for f in seen))
        assert not task.done()
    failures = [frame.body for frame in frames if isinstance(frame.body, Failed)]
    assert [failed.code for failed in failures] == [ErrorCode.INTERNAL, ErrorCode.INTERNAL]
    assert host.report().in_flight == 0


async def test_what_a_finished_request_used_is_recorded(
    options: TransportOptions, gateway: Gateway, client: redis.asyncio.Redis
) -> None:
    async with running(options) as (host, _):
        await gateway.ask('script: {"text": "a b", "cached_tokens": 2}')
        (record,) = await completed(client, options)
    assert (record.request_id, record.attempt, record.engine_id) == ("r1", 0, host.engine_id)
    assert (record.team_id, record.key_id) == (OWNER.team_id, OWNER.key_id)
    assert (record.ending, record.detail) == (Ending.FINISHED, "end")
    assert (record.usage.output_tokens, record.usage.cached_tokens) == (2, 2)
    assert record.first_token_at_s is not None
    assert record.taken_at_s <= record.first_token_at_s <= record.ended_at_s


@pytest.mark.parametrize(
    ("reason", "ending"),
    [
        (CancelReason.CLIENT_LEFT, Ending.CANCELLED),
        (CancelReason.TIMEOUT, Ending.TIMEOUT),
        (CancelReason.SUPERSEDED, Ending.SUPERSEDED),
    ],
)
async def test_what_a_cancelled_request_had_used_is_recorded(
    options: TransportOptions,
    gateway: Gateway,
    client: redis.asyncio.Redis,
    reason: CancelReason,
    ending: Ending,
) -> None:
    async with running(options) as (host, _):
        await gateway.ask(ENDLESS)
        frames = await gateway.see(has(TextDelta))
        await gateway.cancel(host.engine_id, reason=reason)
        (record,) = await completed(client, options)
    assert record.ending is ending
    said = sum(isinstance(frame.body, TextDelta) for frame in frames)
    assert record.usage.output_tokens >= said > 0
    assert record.usage.prompt_tokens > 0


async def test_a_request_whose_gateway_died_is_recorded_so(
    options: TransportOptions, gateway: Gateway, client: redis.asyncio.Redis
) -> None:
    async with running(options):
        await gateway.ask(ENDLESS)
        await gateway.see(has(TextDelta))
        await client.delete(Keys(options.prefix).gateway("g1"))
        (record,) = await completed(client, options)
    assert record.ending is Ending.GATEWAY_LOST


async def test_a_request_that_an_engine_hands_back_is_recorded_so(
    options: TransportOptions, gateway: Gateway, client: redis.asyncio.Redis
) -> None:
    async with running(options):
        await gateway.ask(ENDLESS)
        await gateway.see(has(TextDelta))
    (record,) = await completed(client, options)
    assert record.ending is Ending.ENGINE_LOST


async def test_a_request_that_cannot_be_served_is_recorded_with_its_reason(
    options: TransportOptions, gateway: Gateway, client: redis.asyncio.Redis
) -> None:
    async with running(options, context_tokens=10):
        await gateway.ask("x" * 1000)
        (record,) = await completed(client, options)
    assert (record.ending, record.detail) == (Ending.FAILED, ErrorCode.PROMPT_TOO_LONG)
    assert record.usage.output_tokens == 0


async def test_an_engine_s_fault_is_not_the_last_word(
    options: TransportOptions, gateway: Gateway, client: redis.asyncio.Redis
) -> None:
    async with running(options):
        await gateway.ask('script: {"fail_at": 1}')
        (record,) = await completed(client, options)
    assert (record.ending, record.detail) == (Ending.ENGINE_LOST, ErrorCode.ENGINE_FAILED)
    assert record.usage.output_tokens == 1
