"""Counts that an upstream is asked for pass through the engine as it says them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

import msgspec
import pytest
import redis.asyncio

from inference.backends.port import Tally
from inference.backends.scripted import ScriptedBackend
from inference.engine import counting
from inference.engine import host as host_module
from inference.errors import ErrorCode
from inference.events import Event, Failed, Finished, FinishReason, RawAnswer, Started, Usage
from inference.request import GenerationRequest, RawRequest, TextPart
from inference.transport.frames import Frame, QueueEntry, encode
from inference.transport.keys import Keys
from inference.transport.options import TransportOptions
from tests.contracts.requests import make_request
from tests.engine_host import Gateway, running

COUNTED = RawAnswer(body=b'{ "input_tokens": 12 }')
END = Finished(
    reason=FinishReason.END, usage=Usage(prompt_tokens=12, cached_tokens=0, output_tokens=0)
)


class Upstream(ScriptedBackend):
    """Answers raw requests: once all that are waited for are there, or with a fault."""

    awaited = 1
    waiting = 0
    all_there: asyncio.Event

    async def generate(
        self, request: GenerationRequest, tally: Tally | None = None
    ) -> AsyncGenerator[Event]:
        assert request.raw is not None
        if request.raw.body == b"bug":
            raise ZeroDivisionError
        Upstream.waiting += 1
        if Upstream.waiting == Upstream.awaited:
            Upstream.all_there.set()
        await Upstream.all_there.wait()
        yield Started(prompt_tokens=12)
        if request.raw.body == b"bad":
            yield Failed(code=ErrorCode.INVALID_REQUEST, message="no", answer=COUNTED)
            return
        yield COUNTED
        yield END


class Slow(ScriptedBackend):
    """Counts some prompts only when it is let."""

    gate: asyncio.Event

    async def count(self, request: GenerationRequest) -> int:
        if request.messages[0].parts == (TextPart("slow"),):
            await Slow.gate.wait()
        return await super().count(request)


@pytest.fixture(autouse=True)
def _anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "DRAIN_S", 0.1)
    monkeypatch.setattr(Upstream, "waiting", 0)
    monkeypatch.setattr(Slow, "gate", asyncio.Event(), raising=False)
    monkeypatch.setattr(Upstream, "all_there", asyncio.Event(), raising=False)


@pytest.fixture
async def gateway(client: redis.asyncio.Redis, options: TransportOptions) -> Gateway:
    made = Gateway(client, Keys(options.prefix))
    await made.live()
    return made


async def ask(
    client: redis.asyncio.Redis, options: TransportOptions, request_id: str, body: bytes = b"{}"
) -> None:
    raw = RawRequest(path="/v1/messages/count_tokens", body=body)
    request = msgspec.structs.replace(make_request(), id=request_id, raw=raw)
    entry = QueueEntry(gateway_id="g1", attempt=0, request=request)
    await client.xadd(Keys(options.prefix).counts("model-under-test"), {"r": encode(entry)})


def ended(count: int) -> Callable[[list[Frame]], bool]:
    return lambda frames: (
        sum(isinstance(frame.body, Finished | Failed) for frame in frames) == count
    )


async def test_a_count_passes_as_it_is(
    client: redis.asyncio.Redis, options: TransportOptions, gateway: Gateway
) -> None:
    async with running(options, backend=Upstream):
        await ask(client, options, "r1")
        frames = await gateway.see(ended(1))
    assert [frame.seq for frame in frames] == [0, 1, 2, 3]
    assert [frame.body for frame in frames[1:]] == [Started(prompt_tokens=12), COUNTED, END]


async def test_an_error_passes_as_it_is(
    client: redis.asyncio.Redis, options: TransportOptions, gateway: Gateway
) -> None:
    async with running(options, backend=Upstream):
        await ask(client, options, "r1", b"bad")
        frames = await gateway.see(ended(1))
    failed = frames[-1].body
    assert isinstance(failed, Failed)
    assert failed.answer == COUNTED


async def test_several_are_asked_for_at_once_and_more_wait(
    client: redis.asyncio.Redis,
    options: TransportOptions,
    gateway: Gateway,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(counting, "MOST", 3)
    monkeypatch.setattr(Upstream, "awaited", 3)
    async with running(options, backend=Upstream):
        for number in range(7):
            await ask(client, options, f"r{number}")
        await gateway.see(ended(7))


async def test_a_count_that_takes_long_keeps_no_other_waiting(
    client: redis.asyncio.Redis,
    options: TransportOptions,
    gateway: Gateway,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(counting, "_PATIENCE_S", 0.05)
    async with running(options, backend=Slow):
        for number, text in enumerate(["slow", "quick"]):
            request = msgspec.structs.replace(make_request(text), id=f"r{number}")
            entry = QueueEntry(gateway_id="g1", attempt=0, request=request)
            await client.xadd(Keys(options.prefix).counts("model-under-test"), {"r": encode(entry)})
        frames = await gateway.see(ended(1))
        assert frames[-1].request_id == "r1"
        Slow.gate.set()
        await gateway.see(ended(2))


async def test_a_bug_ends_its_count_and_nothing_else(
    client: redis.asyncio.Redis, options: TransportOptions, gateway: Gateway
) -> None:
    async with running(options, backend=Upstream):
        await ask(client, options, "r1", b"bug")
        await ask(client, options, "r2")
        frames = await gateway.see(ended(2))
    by_id = {frame.request_id: frame.body for frame in frames}
    assert by_id["r2"] == END
    broken = by_id["r1"]
    assert isinstance(broken, Failed)
    assert broken.code is ErrorCode.INTERNAL
