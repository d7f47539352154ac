"""The engine's way back: frames of all its requests, written together once an engine step."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable

from redis.exceptions import ResponseError

from inference.transport.connection import RETRY_AFTER_S, Unreachable
from inference.transport.courier import Courier
from inference.transport.frames import Frame, encode
from inference.transport.keys import Keys

logger = logging.getLogger(__name__)

# A gateway that reads nothing for so many writes is dead or hopelessly behind.
_MAX_ENTRIES = 100_000


class Outbox:
    """Collects frames and writes one stream entry for each gateway and engine step.

    While Redis is away the frames wait here. `on_gone` is called with the id of a gateway whose
    reply stream no longer exists.
    """

    def __init__(self, courier: Courier, keys: Keys, on_gone: Callable[[str], None]) -> None:
        self._courier = courier
        self._keys = keys
        self._on_gone = on_gone
        self._waiting: defaultdict[str, list[Frame]] = defaultdict(list)
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def put(self, gateway_id: str, frame: Frame) -> None:
        """Queue a frame; it is written within this turn of the event loop or the next."""
        self._waiting[gateway_id].append(frame)
        self._idle.clear()
        self._wake.set()

    async def flushed(self) -> None:
        """Wait until everything that was put has been written."""
        await self._idle.wait()

    async def run(self) -> None:
        """Write for ever."""
        while True:
            await self._wake.wait()
            # All requests of one engine step wake in the same turn of the loop; let each of them
            # put its frame before the write.
            await asyncio.sleep(0)
            self._wake.clear()
            batch = dict(self._waiting)
            self._waiting.clear()
            await self._write(batch)
            if not self._waiting:
                self._idle.set()

    async def _write(self, batch: dict[str, list[Frame]]) -> None:
        entries = {gateway_id: encode(frames) for gateway_id, frames in batch.items()}
        while True:
            try:
                written = await asyncio.gather(
                    *(self._add(gateway_id, data) for gateway_id, data in entries.items())
                )
            except (*Unreachable, ResponseError):
                # Written twice is harmless: frames are numbered.
                await asyncio.sleep(RETRY_AFTER_S)
                continue
            for gateway_id, entry_id in zip(entries, written, strict=True):
                if entry_id is None:
                    self._on_gone(gateway_id)
            return

    def _add(self, gateway_id: str, data: bytes) -> Awaitable[bytes | None]:
        """Add an entry, unless the gateway's stream is gone: then the answer is None."""
        trim = ("MAXLEN", "~", _MAX_ENTRIES)
        reply = self._keys.reply(gateway_id)
        return self._courier.send("XADD", reply, "NOMKSTREAM", *trim, "*", "f", data)
