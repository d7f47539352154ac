"""An engine's end of a log: writes it so that none of it is lost with Redis.

The engine keeps the whole log of what it runs in memory, and writes again whatever a Redis that was
started anew has forgotten. Several engines may write to one log, one after another: the one that
opened it last is its only writer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain
from typing import cast

from redis.exceptions import ResponseError

from inference.events import Event, Finished
from inference.transport.connection import RETRY_AFTER_S, Unreachable
from inference.transport.courier import Courier
from inference.transport.keys import Keys
from inference.transport.log import decode_entry, encode_events

logger = logging.getLogger(__name__)

# A log is of use until its request's deadline, and for so long after its last event; then the
# database has the events.
KEEP_ENDED_S = 600
_KEEP_AFTER_DEADLINE_S = 3600

# Opening: the newest writer has the highest number, also after the server has lost its data.
_OPEN = """
local now = redis.call('TIME')
local writer = now[1] * 1000000 + now[2]
local said = redis.call('XRANGE', KEYS[1], '-', '+')
local total = 0
if #said > 0 then
  local last = said[#said][2]
  writer = math.max(writer, tonumber(last[2]) + 1)
  total = last[4]
end
writer = string.format('%.0f', writer)
redis.call('XADD', KEYS[1], '*', 'w', writer, 'n', total, 'e', ARGV[1])
redis.call('EXPIREAT', KEYS[1], ARGV[2])
return {writer, said}
"""
# Appending: the next entry must begin where the last one ends. What is returned is how many events
# the log has now, or -1 if another engine writes it. To begin again at 0 empties the log, but not
# by deleting it: the ids of its entries must never be used again.
_APPEND = """
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
local total = 0
if last then
  local fields = last[2]
  if tonumber(fields[2]) > tonumber(ARGV[1]) then return -1 end
  total = fields[2] == ARGV[1] and tonumber(fields[4]) or -2
end
local start = tonumber(ARGV[2])
if start ~= total and start > 0 then return math.max(total, 0) end
if start ~= total then redis.call('XTRIM', KEYS[1], 'MAXLEN', 0) end
redis.call('XADD', KEYS[1], '*', 'w', ARGV[1], 'n', ARGV[3], 'e', ARGV[4])
redis.call('EXPIREAT', KEYS[1], ARGV[5])
return tonumber(ARGV[3])
"""
_TAKEN_OVER = -1


class LogWriter:
    """Writes the log of one request. `events` are all of them, also those of earlier engines.

    `on_taken_over` is called when another engine has opened the log: this one must stop.
    """

    def __init__(
        self,
        courier: Courier,
        keys: Keys,
        request_id: str,
        deadline_s: float,
        on_taken_over: Callable[[], None],
    ) -> None:
        self._courier = courier
        self._key = keys.log(request_id)
        self._expires_at_s = round(deadline_s) + _KEEP_AFTER_DEADLINE_S
        self._on_taken_over = on_taken_over
        self._open = courier.script(_OPEN)
        self._append = courier.script(_APPEND)
        self._writer = b""
        self._written = 0
        self._task: asyncio.Task[None] | None = None
        self.events: list[Event] = []

    async def open(self) -> None:
        """Become the log's writer, and learn what was said before. Waits for Redis."""
        arguments = [encode_events([]), self._expires_at_s]
        while True:
            try:
                self._writer, said = await self._courier.run(self._open, [self._key], arguments)
                break
            except (*Unreachable, ResponseError):
                await asyncio.sleep(RETRY_AFTER_S)
        entries = (_fields(raw) for _, raw in said)
        self.events = list(chain.from_iterable(decode_entry(each).events for each in entries))
        self._written = len(self.events)
        if self.events and isinstance(self.events[-1], Finished):
            # An engine ended it that had lost it: nothing of that was kept.
            self.events.pop()
            self._written = 0

    def put(self, event: Event) -> None:
        """Write an event, together with all others of this turn of the event loop."""
        self.events.append(event)
        self._start()

    async def end(self, final: Finished | None) -> None:
        """Write the last event, if there is one, and let the log go when nobody reads it any more.

        Should another attempt follow after all, it keeps the log, or writes it again.
        """
        self._expires_at_s = round(time.time()) + KEEP_ENDED_S
        if final is not None:
            self.put(final)
        await self.flushed()
        if final is None:
            with suppress(*Unreachable, ResponseError):
                await self._courier.send("EXPIREAT", self._key, self._expires_at_s)

    async def flushed(self) -> None:
        """Wait until everything that was put has been written, or another engine writes."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def _start(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._write())

    def close(self) -> None:
        """Stop writing."""
        if self._task is not None:
            self._task.cancel()

    async def _write(self) -> None:
        while self._written < len(self.events):
            # Let all that is said in this turn come along.
            await asyncio.sleep(0)
            start, total = self._written, len(self.events)
            data = encode_events(self.events[start:])
            arguments = [self._writer, start, total, data, self._expires_at_s]
            try:
                has = cast("int", await self._courier.run(self._append, [self._key], arguments))
            except (*Unreachable, ResponseError):
                # A write that was done all the same is found out by the next one.
                await asyncio.sleep(RETRY_AFTER_S)
                continue
            if has == _TAKEN_OVER:
                self._on_taken_over()
                return
            if has < start:
                logger.warning("Redis has lost the end of a log: it is written again")
            self._written = has


def _fields(raw: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return the fields of an entry as a script returns them."""
    return dict(zip(raw[::2], raw[1::2], strict=True))
