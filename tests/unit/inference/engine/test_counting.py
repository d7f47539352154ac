"""Counts that take long, are many, or that nobody waits for any more keep nobody else waiting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any

import msgspec
import pytest
import redis.asyncio

from inference.backends.port import Tally
from inference.backends.scripted import ScriptedBackend
from inference.engine import counting
from inference.errors import ErrorCode
from inference.events import Event, Failed, Finished, FinishReason, Usage
from inference.request import GenerationRequest, Owner, RawRequest, RequestedServer, TextPart
from inference.transport.frames import Accepted, Frame, QueueEntry, encode
from inference.transport.keys import Keys
from inference.transport.options import TransportOptions
from tests.conftest import Eventually
from tests.contracts.requests import make_request
from tests.engine_host import Gateway, running

END = Finished(
    reason=FinishReason.END, usage=Usage(prompt_tokens=1, cached_tokens=0, output_tokens=0)
)
HANG = b"hang"


class Upstream(ScriptedBackend):
    """Counts, or says nothing for ever. `hanging` is how many it keeps waiting."""

    hanging = 0

    async def generate(
        self, request: GenerationRequest, tally: Tally | None = None
    ) -> AsyncGenerator[Event]:
        if request.raw is not None and request.raw.body == HANG:
            await self._hang()
        yield END

    async def count(self, request: GenerationRequest) -> int:
        if request.messages[0].parts == (TextPart(HANG.decode()),):
            await self._hang()
        return 1

    async def _hang(self) -> None:
        Upstream.hanging += 1
        try:
            await asyncio.Event().wait()
        finally:
            Upstream.hanging -= 1


class Asking(Gateway):
    """A gateway that asks for counts."""

    def __init__(self, client: redis.asyncio.Redis, keys: Keys) -> None:
        super().__init__(client, keys)
        self._queue = keys.counts("model-under-test")
        self._heartbeat = keys.gateway("g1")

    async def count(self, request_id: str, body: bytes = b"", **fields: Any) -> None:
        """Ask for one that is passed on."""
        raw = RawRequest(path="/v1/messages/count_tokens", body=body)
        await self.send(make_request(), id=request_id, raw=raw, **fields)

    async def send(self, request: GenerationRequest, **fields: Any) -> None:
        """Ask for any."""
        request = msgspec.structs.replace(request, **fields)
        entry = QueueEntry(gateway_id="g1", attempt=0, request=request)
        await self._client.xadd(self._queue, {"r": encode(entry)})

    async def hang(self, *request_ids: str, **fields: Any) -> None:
        """Ask for some that do not end, and wait until they have begun."""
        for request_id in request_ids:
            await self.count(request_id, HANG, **fields)
        await self.see(lambda frames: set(request_ids) <= set(of(frames, Accepted)))

    async def die(self) -> None:
        """Let the heartbeat expire."""
        await self._client.delete(self._heartbeat)


def of(frames: list[Frame], kind: type[Any]) -> dict[str, Any]:
    """Return the events of that kind, by request."""
    return {frame.request_id: frame.body for frame in frames if isinstance(frame.body, kind)}


def ended(request_id: str) -> Callable[[list[Frame]], bool]:
    return lambda frames: request_id in of(frames, Finished | Failed)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Upstream, "hanging", 0)


@pytest.fixture
async def gateway(client: redis.asyncio.Redis, options: TransportOptions) -> Asking:
    made = Asking(client, Keys(options.prefix))
    await made.live()
    return made


async def test_a_caller_that_leaves_gives_its_place_back(
    options: TransportOptions,
    gateway: Asking,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(counting, "MOST", 1)
    async with running(options, backend=Upstream) as (host, _):
        await gateway.hang("r1")
        await gateway.count("r2")
        await gateway.cancel(host.engine_id)

        frames = await gateway.see(ended("r2"))

        assert of(frames, Finished) == {"r2": END}
        await eventually(lambda: Upstream.hanging == 0)


async def test_a_count_has_a_deadline(
    options: TransportOptions, gateway: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "LONGEST_S", 0.05)
    async with running(options, backend=Upstream):
        await gateway.count("r1", HANG)
        await gateway.send(make_request(HANG.decode()), id="r2")
        frames = await gateway.see(lambda frames: ended("r1")(frames) and ended("r2")(frames))

    assert {failed.code for failed in of(frames, Failed).values()} == {ErrorCode.TIMEOUT}
    assert Upstream.hanging == 0


async def test_the_requests_own_deadline_may_be_sooner(
    options: TransportOptions, gateway: Asking
) -> None:
    async with running(options, backend=Upstream):
        await gateway.count("r1", HANG, deadline_s=time.time() - 1)
        frames = await gateway.see(ended("r1"))

    assert of(frames, Failed)["r1"].code is ErrorCode.TIMEOUT


async def test_one_team_takes_no_more_than_its_share(
    options: TransportOptions, gateway: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "MOST_OF_ONE_TEAM", 2)
    greedy, other = (Owner(team_id=team_id, key_id="key") for team_id in (1, 2))
    async with running(options, backend=Upstream):
        await gateway.hang("r1", "r2", owner=greedy)
        await gateway.count("r3", owner=greedy)
        await gateway.count("r4", owner=other)
        frames = await gateway.see(lambda frames: ended("r3")(frames) and ended("r4")(frames))

    assert of(frames, Failed)["r3"].code is ErrorCode.OVERLOADED
    assert of(frames, Finished) == {"r4": END}


async def test_what_callers_servers_say_first_is_waited_for_by_nobody(
    options: TransportOptions, gateway: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "_PATIENCE_S", 600)
    servers = (RequestedServer(name="theirs", url="http://127.0.0.1:9/"),)
    async with running(options, backend=Upstream):
        await gateway.send(make_request(HANG.decode()), id="r1", servers=servers)
        await gateway.send(make_request("quick"), id="r2")
        frames = await gateway.see(ended("r2"))

    assert of(frames, Finished) == {"r2": END}


async def test_a_gateway_that_dies_waits_for_no_count(
    options: TransportOptions,
    gateway: Asking,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(counting, "LONGEST_S", 600)
    async with running(options, backend=Upstream):
        await gateway.hang("r1", deadline_s=time.time() + 600)
        await eventually(lambda: Upstream.hanging == 1)
        await gateway.die()

        await eventually(lambda: Upstream.hanging == 0)
