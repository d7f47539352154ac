"""An engine's host, and a gateway that the tests play by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import redis.asyncio

from inference.backends.scripted import ScriptedBackend
from inference.engine.host import EngineHost
from inference.engine.work import WorkSource
from inference.request import Lane, Owner
from inference.transport.frames import (
    Cancel,
    CancelReason,
    Frame,
    QueueEntry,
    decode_frames,
    encode,
)
from inference.transport.keys import Keys
from inference.transport.options import TransportOptions
from tests.contracts.requests import make_entry, make_request
from tests.streams import entries_of, until

OWNER = Owner(team_id=7, key_id="key-1")
ENDLESS = 'script: {"tokens": 100000, "token_delay_s": 0.05}'

Made = tuple[EngineHost, "asyncio.Task[bool]"]


class Gateway:
    """A gateway's traces in Redis, and what it has received."""

    def __init__(self, client: redis.asyncio.Redis, keys: Keys) -> None:
        self._client = client
        self._keys = keys
        self.frames: list[Frame] = []

    async def live(self) -> None:
        await self._client.set(self._keys.gateway("g1"), b"1")
        await self._client.xadd(self._keys.reply("g1"), {"hello": b"1"})

    async def ask(
        self,
        text: str = "go",
        attempt: int = 0,
        request_id: str = "r1",
        queue: str = "",
        lane: Lane = Lane.REALTIME,
    ) -> None:
        request = msgspec.structs.replace(
            make_request(text, max_tokens=900), id=request_id, owner=OWNER, lane=lane
        )
        entry = QueueEntry(gateway_id="g1", attempt=attempt, request=request)
        queue = queue or self._keys.queue("model-under-test", lane)
        await self._client.xadd(queue, {"r": encode(entry)})

    async def cancel(
        self, engine_id: str, attempt: int = 0, reason: CancelReason = CancelReason.CLIENT_LEFT
    ) -> None:
        cancel = encode(Cancel(request_id="r1", attempt=attempt, reason=reason))
        await self._client.xadd(self._keys.control(engine_id), {"c": cancel})

    async def see(self, condition: Callable[[list[Frame]], bool]) -> list[Frame]:
        """Wait until what has come fulfils the condition."""

        async def look() -> bool:
            entries = await entries_of(self._client, self._keys.reply("g1"))
            self.frames = [
                frame
                for _, fields in entries
                if b"f" in fields
                for frame in decode_frames(fields[b"f"])
            ]
            return condition(self.frames)

        await until(look)
        return self.frames


def has(kind: type[Any], attempt: int = 0) -> Callable[[list[Frame]], bool]:
    """Return a condition: such an event of that attempt has come."""
    return lambda frames: any(
        isinstance(frame.body, kind) and frame.attempt == attempt for frame in frames
    )


@asynccontextmanager
async def running(
    options: TransportOptions,
    *,
    stall_after_s: float = 30,
    backend: type[ScriptedBackend] = ScriptedBackend,
    source: WorkSource | None = None,
    **fields: Any,
) -> AsyncIterator[Made]:
    """Run a host, and stop it at the end."""
    entry = make_entry(**({"context_tokens": 1_000_000} | fields))
    work = None if source is None else lambda _engine_id: source
    host = EngineHost(entry, backend(entry), options, stall_after_s, work)
    task = asyncio.create_task(host.run())
    try:
        yield host, task
    finally:
        host.request_stop()
        async with asyncio.timeout(20):
            await task
