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
from functools import partial
from typing import Any

from redis.exceptions import ResponseError

from inference.transport.connection import RETRY_AFTER_S, Unreachable
from inference.transport.courier import Courier
from inference.transport.keys import Keys
from inference.transport.records import Record, encode_entry, encode_record

logger = logging.getLogger(__name__)

# Under load several records come meanwhile, and travel for the price of one.
_GATHER_S = 0.02
# An entry that is as large as that waits for no more of them.
_ENTRY_BYTES = 256 * 1024
# Redis writes its append-only file at least every two seconds, or says that it cannot.
_KEEP_S = 5.0
_LOOK_EVERY_S = 1.0
# While Redis is away, so many try again at a time.
_AGAIN = 512
# With Redis away for hours the newest records are dropped, loudly, rather than the process.
_MAX_WAITING_BYTES = 256 * 1024 * 1024


class RecordWriter:
    """The writing end of the stream of records. One for each process, on its event loop.

    `waiting_bytes` are not yet written; `server` is the run of Redis that was seen last.
    """

    def __init__(self, courier: Courier, keys: Keys) -> None:
        self._courier = courier
        self._stream = keys.records
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._refused: deque[bytes] = deque()
        self._written: deque[tuple[float, bytes]] = deque()
        self._on_their_way = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.waiting_bytes = 0
        self.server = ""

    @property
    def kept(self) -> int:
        """Entries that were written so lately that the server may still lose them."""
        return len(self._written)

    def put(self, record: Record) -> None:
        """Write a record, in a moment or as soon as Redis is there."""
        data = encode_record(record)
        if self.waiting_bytes + len(data) > _MAX_WAITING_BYTES:
            logger.error("Redis has been away for too long: the record of a request is lost")
            return
        self.waiting_bytes += len(data)
        self._gathered.append(data)
        self._gathered_bytes += len(data)
        self._idle.clear()
        if self._gathered_bytes > _ENTRY_BYTES:
            self._flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_GATHER_S, self._gather_no_more)

    def _flush(self) -> None:
        if self._gathered:
            entry = encode_entry(self._gathered)
            self.waiting_bytes += len(entry) - self._gathered_bytes
            self._gathered.clear()
            self._gathered_bytes = 0
            self._send(entry)

    def _gather_no_more(self) -> None:
        self._timer = None
        self._flush()

    async def flushed(self) -> None:
        """Wait until everything that was put has been written."""
        self._flush()
        await self._idle.wait()

    async def run(self) -> None:
        """For ever: write again what was refused, and what a server may have forgotten."""
        looked_s = float("-inf")
        while True:
            await asyncio.sleep(RETRY_AFTER_S)
            for _ in range(min(_AGAIN, len(self._refused))):
                self._send(self._refused.popleft())
            now_s = time.monotonic()
            if now_s - looked_s >= _LOOK_EVERY_S:
                looked_s = now_s
                with suppress(*Unreachable, ResponseError):
                    await self._look()

    def _send(self, entry: bytes) -> None:
        self._on_their_way += 1
        self._idle.clear()
        answer = self._courier.send("XADD", self._stream, "*", "r", entry)
        answer.add_done_callback(partial(self._answered, entry))

    def _answered(self, entry: bytes, answer: asyncio.Future[Any]) -> None:
        self._on_their_way -= 1
        if answer.cancelled() or answer.exception() is not None:
            self._refused.append(entry)
            return
        self.waiting_bytes -= len(entry)
        self._written.append((time.monotonic(), entry))
        if not (self._on_their_way or self._refused or self._gathered):
            self._idle.set()

    async def _look(self) -> None:
        """Write again what a server may have lost that was started since the last look."""
        asked_s = time.monotonic()
        server = _run_id(await self._courier.send("INFO", "server"))
        if self.server and server != self.server:
            logger.warning("Redis was started anew: its last records are written again")
            again, self._written = self._written, deque()
            for _, entry in again:
                self.waiting_bytes += len(entry)
                self._send(entry)
        self.server = server
        # Only a server that was seen alive after it was given a record has had time to save it.
        while self._written and self._written[0][0] < asked_s - _KEEP_S:
            self._written.popleft()


def _run_id(info: bytes) -> str:
    fields = dict(line.partition(b":")[::2] for line in info.splitlines())
    return fields[b"run_id"].decode()
