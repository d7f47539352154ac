"""Writes records so that none is lost with Redis.

A Redis that is killed and comes back from its append-only file may have lost what it acknowledged
in its last moments. So what was written is kept here for a while, and written again when the
server turns out to be another run of it. Records that arrive twice are harmless.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from contextlib import suppress

from redis.exceptions import ResponseError

from inference.transport.connection import RETRY_AFTER_S, Unreachable
from inference.transport.courier import Courier
from inference.transport.keys import Keys
from inference.transport.records import Record, encode_record

logger = logging.getLogger(__name__)

# Redis writes its append-only file at least every two seconds, or says that it cannot.
_KEEP_S = 5.0
_LOOK_EVERY_S = 1.0
_BATCH = 256
# With Redis away for hours the newest records are dropped, loudly, rather than the process.
_MAX_WAITING_BYTES = 256 * 1024 * 1024


class RecordWriter:
    """The writing end of the stream of records. One for each process, on its event loop.

    `waiting_bytes` are not yet written; `server` is the run of Redis that was seen last.
    """

    def __init__(self, courier: Courier, keys: Keys) -> None:
        self._courier = courier
        self._stream = keys.records
        self._waiting: deque[bytes] = deque()
        self.waiting_bytes = 0
        self._written: deque[tuple[float, bytes]] = deque()
        self.server = ""
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def kept(self) -> int:
        """Records that were written so lately that the server may still lose them."""
        return len(self._written)

    def put(self, record: Record) -> None:
        """Queue a record; it is written within this turn of the event loop or the next."""
        data = encode_record(record)
        if self.waiting_bytes + len(data) > _MAX_WAITING_BYTES:
            logger.error("Redis has been away for too long: the record of a request is lost")
            return
        self._waiting.append(data)
        self.waiting_bytes += len(data)
        self._idle.clear()
        self._wake.set()

    async def flushed(self) -> None:
        """Wait until everything that was put has been written."""
        await self._idle.wait()

    async def run(self) -> None:
        """Write for ever, and look for a server that has forgotten."""
        looking = asyncio.create_task(self._look_for_ever())
        try:
            while True:
                await self._wake.wait()
                # Let everybody who ends in the same turn of the loop put a record first.
                await asyncio.sleep(0)
                self._wake.clear()
                while self._waiting:
                    await self._write()
                self._idle.set()
        finally:
            looking.cancel()
            with suppress(asyncio.CancelledError):
                await looking

    async def _write(self) -> None:
        batch = [self._waiting[index] for index in range(min(_BATCH, len(self._waiting)))]
        try:
            await asyncio.gather(
                *(self._courier.send("XADD", self._stream, "*", "r", data) for data in batch)
            )
        except (*Unreachable, ResponseError):
            # Written twice is harmless.
            await asyncio.sleep(RETRY_AFTER_S)
            return
        now_s = time.monotonic()
        for data in batch:
            self._waiting.popleft()
            self.waiting_bytes -= len(data)
            self._written.append((now_s, data))

    async def _look_for_ever(self) -> None:
        while True:
            with suppress(*Unreachable, ResponseError):
                await self._look()
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _look(self) -> None:
        """Write again what a server may have lost that was started since the last look."""
        asked_s = time.monotonic()
        server = str((await self._courier.send("INFO", "server"))["run_id"])
        if self.server and server != self.server:
            logger.warning("Redis was started anew: its last records are written again")
            for _, data in self._written:
                self._waiting.append(data)
                self.waiting_bytes += len(data)
            self._written.clear()
            self._idle.clear()
            self._wake.set()
        self.server = server
        # Only a server that was seen alive after it was given a record has had time to save it.
        while self._written and self._written[0][0] < asked_s - _KEEP_S:
            self._written.popleft()
