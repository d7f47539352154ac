"""Both ends of the transport together, over a real Redis-protocol server, in one process."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
import pytest
import redis.asyncio
from django.conf import settings

from inference.backends.scripted import ScriptedBackend
from inference.engine import host as host_module
from inference.engine.host import EngineHost
from inference.errors import ErrorCode, TandemError
from inference.events import Failed, Finished, TextDelta
from inference.fold import fold
from inference.request import GenerationRequest
from inference.transport.connection import connect
from inference.transport.dispatcher import Dispatcher
from inference.transport.options import TransportOptions
from inference.transport.run import Run
from tests.conftest import Eventually
from tests.contracts.requests import make_entry, make_request

ENDLESS = 'script: {"tokens": 100000, "token_delay_s": 0.02}'


@pytest.fixture(autouse=True)
def _short_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "DRAIN_S", 0.1)


@pytest.fixture
def options() -> TransportOptions:
    return TransportOptions(
        redis_url=settings.REDIS_URL,
        prefix=f"integration-{secrets.token_hex(4)}",
        heartbeat_s=0.05,
        dead_after_s=1.0,
    )


@pytest.fixture
async def dispatcher(options: TransportOptions) -> AsyncIterator[Dispatcher]:
    made = Dispatcher(options)
    await made.start()
    yield made
    await made.stop()
    await made.close()


@asynccontextmanager
async def engine(options: TransportOptions, **fields: Any) -> AsyncIterator[EngineHost]:
    """Run an engine."""
    entry = make_entry(**({"context_tokens": 1_000_000} | fields))
    host = EngineHost(entry, ScriptedBackend(entry), options, stall_after_s=30)
    task = asyncio.create_task(host.run())
    yield host
    host.request_stop()
    async with asyncio.timeout(20):
        await task


def ask(text: str) -> GenerationRequest:
    return make_request(text, max_tokens=100_000)


async def submit(dispatcher: Dispatcher, text: str, max_waiting: int = 100) -> Run:
    return await dispatcher.submit(ask(text), max_waiting=max_waiting)


async def test_an_answer_crosses_whole(
    options: TransportOptions, dispatcher: Dispatcher, eventually: Eventually
) -> None:
    words = " ".join(str(number) for number in range(500))
    async with engine(options):
        await eventually(lambda: bool(dispatcher.engines.ready("model-under-test")))
        run = await submit(dispatcher, f'script: {{"text": "{words}"}}')
        async with asyncio.timeout(20):
            assert (await fold(run)).text == words


async def test_many_requests_at_once_do_not_mix(
    options: TransportOptions, dispatcher: Dispatcher, eventually: Eventually
) -> None:
    async def answer(number: int) -> str:
        run = await submit(dispatcher, f'script: {{"text": "{number}", "tokens": 20}}', 1000)
        return (await fold(run)).text

    async with engine(options, capacity=16), engine(options, capacity=16):
        await eventually(lambda: len(dispatcher.engines.ready("model-under-test")) == 2)
        async with asyncio.timeout(60):
            texts = await asyncio.gather(*(answer(number) for number in range(200)))
    assert texts == [" ".join([str(number)] * 20) for number in range(200)]


async def test_an_engine_that_leaves_hands_a_silent_request_to_another(
    options: TransportOptions, dispatcher: Dispatcher, eventually: Eventually
) -> None:
    async with AsyncExitStack() as first, engine(options, capacity=1) as second:
        leaving = await first.enter_async_context(engine(options, capacity=1))
        await eventually(lambda: len(dispatcher.engines.ready("model-under-test")) == 2)
        runs = [
            await submit(dispatcher, 'script: {"first_token_delay_s": 1, "text": "whole"}')
            for _ in range(2)
        ]
        await eventually(lambda: leaving.report().in_flight == second.report().in_flight == 1)
        await first.aclose()
        async with asyncio.timeout(20):
            assert [(await fold(run)).text for run in runs] == ["whole", "whole"]


async def test_a_fault_of_the_engine_before_any_text_is_tried_again_and_then_told(
    options: TransportOptions, dispatcher: Dispatcher, eventually: Eventually
) -> None:
    async with engine(options):
        await eventually(lambda: bool(dispatcher.engines.ready("model-under-test")))
        run = await submit(dispatcher, 'script: {"fail_at": 0}')
        async with asyncio.timeout(20):
            with pytest.raises(TandemError) as caught:
                await fold(run)
    assert caught.value.code is ErrorCode.ENGINE_LOST
    assert run.attempt == 2


async def test_when_redis_forgets_everything_no_engine_goes_on_for_nobody(
    options: TransportOptions, dispatcher: Dispatcher, eventually: Eventually
) -> None:
    async with engine(options) as host, connect(options.redis_url) as client:
        await eventually(lambda: bool(dispatcher.engines.ready("model-under-test")))
        running = await submit(dispatcher, ENDLESS)
        silent = await submit(dispatcher, 'script: {"first_token_delay_s": 1, "text": "whole"}')
        await eventually(lambda: running.text_sent and silent.engine_id is not None)
        await forget_everything(client, options)
        async with asyncio.timeout(20):
            last = [event async for event in running][-1]
            assert (await fold(silent)).text == "whole"
        assert isinstance(last, Failed)
        await eventually(lambda: host.report().in_flight == 0)


async def forget_everything(client: redis.asyncio.Redis, options: TransportOptions) -> None:
    """Delete the install's keys in one step, as a restart without data does."""
    found = [key async for key in client.scan_iter(f"{options.prefix}:*")]
    await client.delete(*found)


async def test_what_is_past_its_deadline_ends_in_the_engine_too(
    options: TransportOptions, dispatcher: Dispatcher, eventually: Eventually
) -> None:
    async with engine(options) as host:
        await eventually(lambda: bool(dispatcher.engines.ready("model-under-test")))
        request = msgspec.structs.replace(ask(ENDLESS), deadline_s=time.time() + 0.5)
        run = await dispatcher.submit(request, max_waiting=1)
        async with asyncio.timeout(20):
            events = [event async for event in run]
        assert isinstance(events[-1], Failed)
        assert events[-1].code is ErrorCode.TIMEOUT
        assert not any(isinstance(event, Finished) for event in events)
        assert any(isinstance(event, TextDelta) for event in events)
        await eventually(lambda: host.report().in_flight == 0)
