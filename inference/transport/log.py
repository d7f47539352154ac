"""The log of a request: all of its events from the first on, for callers who come, go and resume.

A log is a Redis stream. Each entry holds the next few events and how many there are with them, so
that a reader notices what it has already and what it misses.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import msgspec
import uuid_utils
from redis.exceptions import ResponseError

from inference.events import Event, Failed, Finished
from inference.transport.connection import BLOCK_MS, RETRY_AFTER_S, Unreachable, connect
from inference.transport.courier import Courier
from inference.transport.keys import Keys
from inference.transport.options import TransportOptions
from inference.transport.streams import Entry

logger = logging.getLogger(__name__)

# A follower hears at least so often that its log says nothing.
QUIET_S = 2.0
# All logs are read at most so often: with many of them, one read then brings news of many.
_PACE_S = 0.01
_ENTRIES_AT_ONCE = 256
_WAKE_TTL_S = 60

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Event])


def encode_events(events: Sequence[Event]) -> bytes:
    """Encode the events of one entry."""
    return _encoder.encode(events)


class LogEntry(NamedTuple):
    """Some events, and how many the log has with them."""

    total: int
    events: list[Event]


def decode_entry(fields: dict[bytes, bytes]) -> LogEntry:
    """Decode one entry of a log. Raises `msgspec.DecodeError`."""
    return LogEntry(int(fields[b"n"]), _decoder.decode(fields[b"e"]))


class Position:
    """Where a reader is in a log: it makes every event come once, whatever is written twice."""

    def __init__(self) -> None:
        self.after: bytes | str = "0"
        self.count = 0

    def take(self, entries: Sequence[Entry]) -> list[Event]:
        """Return the events of the next entries that have not come yet.

        Where one is missing, reading begins again at the log's first entry.
        """
        fresh: list[Event] = []
        for entry_id, fields in entries:
            total, events = decode_entry(fields)
            if total - len(events) > self.count:
                self.after = "0"
                break
            self.after = entry_id
            fresh += events[len(events) - max(0, total - self.count) :]
            self.count = max(self.count, total)
        return fresh


class LogReader:
    """Follows logs: any number, by any number of followers each, over one connection.

    One for each process, on its event loop. Its courier outlives it.
    """

    def __init__(self, options: TransportOptions, courier: Courier) -> None:
        self._keys = Keys(options.prefix)
        self._client = connect(options.redis_url)
        self._courier = courier
        self._logs: dict[bytes, _Log] = {}
        # Something is added to this stream when the read that waits is to be begun anew.
        self._wake_key = self._keys.log_reader(str(uuid_utils.uuid7()))
        self._woken_at: bytes | str = "0"
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to read."""
        self._task = asyncio.get_running_loop().create_task(self._read_for_ever())

    async def stop(self) -> None:
        """Read no more, and close the connection."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._client.aclose()

    def follow(self, request_id: str) -> Follower:
        """Return a follower of the request's log, whether there is one yet or not.

        Close it in the end.
        """
        key = self._keys.log(request_id).encode()
        log = self._logs.get(key)
        if log is None:
            log = self._logs[key] = _Log()
            self._wanted.set()
            self._courier.send("XADD", self._wake_key, "MAXLEN", 1, "*", "w", b"")
            self._courier.send("EXPIRE", self._wake_key, _WAKE_TTL_S)
        follower = Follower(log, self._left)
        log.followers.add(follower)
        return follower

    def _left(self, log: _Log) -> None:
        if not log.followers:
            self._logs = {key: each for key, each in self._logs.items() if each is not log}

    async def _read_for_ever(self) -> None:
        while True:
            logs = {key: log for key, log in self._logs.items() if not log.ended}
            if not logs:
                self._wanted.clear()
                await self._wanted.wait()
                continue
            readable = {key: log for key, log in logs.items() if not log.broken}
            places: dict[Any, Any] = {key: log.position.after for key, log in readable.items()}
            places[self._wake_key] = self._woken_at
            try:
                found = await self._client.xread(places, count=_ENTRIES_AT_ONCE, block=BLOCK_MS)
            except (*Unreachable, ResponseError):
                await asyncio.sleep(RETRY_AFTER_S)
                found = []
            for key, entries in cast("list[tuple[bytes, list[Entry]]]", found):
                if log := readable.get(key):
                    log.take(entries)
                else:
                    self._woken_at = entries[-1][0]
            for log in logs.values():
                log.look_at_clock()
            await asyncio.sleep(_PACE_S)


class _Log:
    """What has come of one log, for all who follow it."""

    def __init__(self) -> None:
        self.position = Position()
        self.events: list[Event] = []
        self.followers: set[Follower] = set()
        self.ended = False
        self.broken = False
        self.heard_s = time.monotonic()
        self._told_s = self.heard_s

    def take(self, entries: Sequence[Entry]) -> None:
        """Take what was read."""
        try:
            fresh = self.position.take(entries)
        except (KeyError, ValueError, msgspec.DecodeError):
            logger.exception("A log of another version cannot be read")
            self.broken = True
            return
        if fresh:
            self.events += fresh
            self.ended = isinstance(fresh[-1], Finished | Failed)
            self.heard_s = time.monotonic()
            self._tell()

    def look_at_clock(self) -> None:
        """Tell the followers when nothing has come for a while, and again after each while."""
        if time.monotonic() - self._told_s >= QUIET_S:
            self._tell()

    def _tell(self) -> None:
        self._told_s = time.monotonic()
        for follower in self.followers:
            follower.wake()


class Follower:
    """The events of one request, from its first to its last.

    `next` returns nothing now and then, when it was woken or its log says nothing: the caller may
    then look in the database how the request does, for its log may be gone.
    """

    def __init__(self, log: _Log, on_close: Callable[[_Log], None]) -> None:
        self._log = log
        self._on_close = on_close
        self._count = 0
        self._began_s = time.monotonic()
        self._waiter: asyncio.Future[None] | None = None

    @property
    def missing(self) -> bool:
        """Whether not a single event has come: the request has not begun, or its log is gone."""
        return not self._log.events

    @property
    def quiet_s(self) -> float:
        """For how many seconds nothing has come to this follower."""
        return time.monotonic() - max(self._began_s, self._log.heard_s)

    async def next(self) -> list[Event]:
        """Return every event that has come since the last call, waiting for one or for `wake`.

        Empty after `QUIET_S` without any.
        """
        if self._count == len(self._log.events):
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        events = self._log.events[self._count :]
        self._count += len(events)
        return events

    def wake(self) -> None:
        """Let a waiting `next` return, with nothing if nothing has come."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self) -> None:
        """Stop following."""
        self._log.followers.discard(self)
        self._on_close(self._log)
