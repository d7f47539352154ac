"""Admission: how many requests of which lane an engine runs at the same time.

Work in the lower lanes takes whatever is free, save a few places that it leaves free at any time:
a realtime request that comes finds one, and need not wait until something ends.
"""

from __future__ import annotations

import asyncio
from bisect import insort
from collections import Counter
from itertools import count
from typing import NamedTuple

from inference.request import Lane

_URGENCY = {lane: place for place, lane in enumerate(Lane)}


class _Waiter(NamedTuple):
    """Somebody who waits for a permit. They are served in this order."""

    urgency: int
    number: int
    lane: Lane
    granted: asyncio.Future[None]


class Admission:
    """The permits of one engine. A request holds one from before it is taken until its end.

    `kept` places are left free by the lower lanes, beside those that realtime requests use.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.kept = max(1, capacity // 4) if capacity > 1 else 0
        self._held: Counter[Lane] = Counter()
        self._standing_by = False
        self._waiting: list[_Waiter] = []
        self._numbers = count()

    @property
    def in_use(self) -> int:
        """Permits that are held for requests, in all lanes."""
        return self._held.total()

    def room(self, lane: Lane) -> int:
        """Permits that a lane could have now, were nobody more urgent waiting."""
        kept = int(self._standing_by) if lane is Lane.REALTIME else self.kept
        return max(0, self.capacity - self.in_use - kept)

    async def acquire(self, lane: Lane) -> None:
        """Wait for a permit and take it. The most urgent lane that waits is served first."""
        if self.try_acquire(lane, 1):
            return
        granted = asyncio.get_running_loop().create_future()
        waiter = _Waiter(_URGENCY[lane], next(self._numbers), lane, granted)
        insort(self._waiting, waiter)
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self.release(lane)
            else:
                self._waiting.remove(waiter)
            raise

    def try_acquire(self, lane: Lane, most: int) -> int:
        """Take up to so many permits that are free, and return how many."""
        if self._waiting and self._waiting[0].urgency <= _URGENCY[lane]:
            return 0
        taken = min(most, self.room(lane))
        self._held[lane] += taken
        return taken

    def release(self, lane: Lane, permits: int = 1) -> None:
        """Give permits back."""
        self._held[lane] -= permits
        self._serve()

    async def stand_by(self) -> None:
        """Wait for a permit with which to wait for the next realtime request.

        To the lower lanes it is one of the places that they leave free, and so only for an engine
        that keeps any. Harmless when called again.
        """
        if not self._standing_by:
            await self.acquire(Lane.REALTIME)
            self._held[Lane.REALTIME] -= 1
            self._standing_by = True
            # What is kept does not depend on whether somebody stands by.
            self._serve()

    def begin(self) -> None:
        """The request that was waited for has come: it holds the permit now."""
        self._standing_by = False
        self._held[Lane.REALTIME] += 1

    def _serve(self) -> None:
        """Hand out what is free. Where the first in line finds no room, nobody behind it does."""
        while self._waiting and self.room(self._waiting[0].lane):
            waiter = self._waiting.pop(0)
            self._held[waiter.lane] += 1
            waiter.granted.set_result(None)
