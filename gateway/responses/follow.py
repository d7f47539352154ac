"""Follows a background response: its events from the first on, whoever makes them and when.

While it runs they are in its log, from its end on in its row; a log that is gone, or never was, is
no gap. Only a response that was begun with `stream` has them (contracts 10.5, bug 44).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

from gateway.responses.rows import answer_of, error_of
from inference.errors import ErrorCode, TandemError
from inference.events import Event, Failed, Finished
from jobs import packing
from jobs.models import StoredResponse

logger = logging.getLogger(__name__)

# A row may end without a word in its log: one that was cancelled before an engine took it.
_LOOK_S = 1.0
# Whoever comes late has all of it before them, and is not alone on the event loop.
_AT_ONCE = 128

Load = Callable[[], Awaitable[tuple[StoredResponse, bool]]]


class Log(Protocol):
    """The events of a response that is being made, from the first on."""

    async def next(self) -> list[Event]:
        """Wait for events, or for `wake`; empty if none came."""

    def wake(self) -> None:
        """Let a waiting `next` return."""

    def close(self) -> None:
        """Stop following."""


class Followed:
    """The events of one response. `row` is what was last known of it, its end at the latest.

    `load` reads the row, and whether it `is_at_work`; it raises `TandemError`, NOT_FOUND once the
    response was deleted.
    """

    def __init__(self, row: StoredResponse, log: Log, load: Load) -> None:
        self.row = row
        self._at_work = True
        self._log = log
        self._load = load
        self._given = 0
        self._rest: list[Event] = []
        self._greeted = False
        self._woken = False
        self._over = False

    async def next(self) -> list[Event]:
        """Return the next events that have come, waiting for one or for `wake`; first of all, none.

        A stream has events of its own that say that the response is there: those need none of the
        engine's.
        """
        if self._rest:
            await asyncio.sleep(0)
        else:
            self._rest = await self._news()
        events = self._rest[:_AT_ONCE]
        del self._rest[:_AT_ONCE]
        return events

    async def _news(self) -> list[Event]:
        if not self._greeted:
            self._greeted = True
            await self._look()
            return []
        while self._at_work:
            self._woken = False
            if events := await self._logged():
                return events
            if self._woken:
                return []
            await self._look()
        self._over = True
        return await asyncio.to_thread(self._kept)

    def wake(self) -> None:
        """Let a waiting `next` return."""
        self._woken = True
        self._log.wake()

    def close(self) -> None:
        """Stop following; the response goes on (bug 42)."""
        self._log.close()

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Yield the events one by one, to the last."""
        while self._rest or not self._over:
            for event in await self.next():
                yield event

    async def _logged(self) -> list[Event]:
        timer = asyncio.get_running_loop().call_later(_LOOK_S, self._log.wake)
        try:
            events = await self._log.next()
        finally:
            timer.cancel()
        if events and isinstance(events[-1], Finished | Failed):
            # The row says how it ended, and when; or that an engine said so that had lost it.
            events = events[:-1]
            await self._look()
        self._given += len(events)
        return events

    def _kept(self) -> list[Event]:
        """Return what the row has beyond what was given, and the end."""
        events = list(packing.unpack_events(bytes(self.row.events)))
        if events and isinstance(events[-1], Finished | Failed):
            events.pop()
        return [*events[self._given :], _end(self.row)]

    async def _look(self) -> None:
        try:
            self.row, self._at_work = await self._load()
        except TandemError as error:
            if error.code is not ErrorCode.NOT_FOUND:
                logger.warning("a response is followed by its log alone: %s", error.message)
                return
            self.row.status = StoredResponse.Status.CANCELLED
            self.row.error_message = "the response was deleted"
            self._at_work = False


def _end(row: StoredResponse) -> Event:
    if answer := answer_of(row):
        return answer.finished
    if error := error_of(row):
        return Failed(code=error.code, message=error.message)
    return Failed(
        code=ErrorCode.CANCELLED, message=row.error_message or "the response was cancelled"
    )
