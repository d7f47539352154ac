"""Admission: how many requests of which lane an engine runs at the same time.

Work in the lower lanes takes whatever is free, save a few places that it leaves free at any time:
a realtime request that comes finds one, and need not wait until something ends. They are as many as
realtime lately needed. Should more come at once, or one when realtime was quiet for so long that
none are left free, work gives up places that it has.
"""

from __future__ import annotations

import asyncio
import time
from bisect import insort
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import NamedTuple

from inference.request import URGENCY, Lane

QUIET_AFTER_S = 300.0
"""So long after the last realtime request work has the whole engine."""

# How many places realtime needs is remembered for one to two of these.
_PEAK_S = 30.0
# However many that were, work leaves no more free than this share of all.
_MOST_KEPT = 1 / 4


class _Peak:
    """The most that a number was in the last minute or half. Begins at 0."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until_s = clock() + _PEAK_S
        self._now = self._before = 0

    def see(self, number: int) -> None:
        """Take the number in."""
        self._age()
        self._now = max(self._now, number)

    def value(self) -> int:
        """Return the highest."""
        self._age()
        return max(self._now, self._before)

    def _age(self) -> None:
        now_s = self._clock()
        if now_s < self._until_s:
            return
        self._before = self._now if now_s < self._until_s + _PEAK_S else 0
        self._now = 0
        self._until_s = now_s + _PEAK_S


class _Waiter(NamedTuple):
    """Somebody who waits for a permit. They are served in this order."""

    urgency: int
    number: int
    lane: Lane
    granted: asyncio.Future[None]


class Admission:
    """The permits of one engine. A request holds one from before it is taken until its end.

    `clock` is in seconds, from anywhere.
    """

    def __init__(self, capacity: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.capacity = capacity
        # Asks work for a place, and says whether it gives one up.
        self.reclaim: Callable[[], bool] = lambda: False
        self._most_kept = max(1, int(capacity * _MOST_KEPT)) if capacity > 1 else 0
        self._clock = clock
        self._realtime_at_s = clock()
        self._peak = _Peak(clock)
        self._held: Counter[Lane] = Counter()
        self._standing_by = False
        self._waiting: list[_Waiter] = []
        self._numbers = count()

    @property
    def in_use(self) -> int:
        """Permits that are held for requests, in all lanes."""
        return self._held.total()

    def held(self, lane: Lane) -> int:
        """Permits that are held for requests of a lane."""
        return self._held[lane]

    @property
    def keeps(self) -> bool:
        """Whether the lower lanes leave places free at all: an engine with one place has none."""
        return self._most_kept > 0

    @property
    def kept(self) -> int:
        """Places that the lower lanes leave free, beside those that realtime requests use.

        One at least, and as many as lead to one more than realtime used at most in the last minute;
        none when realtime has been quiet for long.
        """
        if self._is_quiet():
            return 0
        needed = self._peak.value() + 1 - self._held[Lane.REALTIME]
        return min(self._most_kept, max(1, needed))

    def room(self, lane: Lane) -> int:
        """Permits that a lane could have now, were nobody more urgent waiting."""
        kept = int(self._standing_by) if lane is Lane.REALTIME else self.kept
        return max(0, self.capacity - self.in_use - kept)

    async def acquire(self, lane: Lane) -> None:
        """Wait for a permit and take it. The most urgent lane that waits is served first."""
        if self.try_acquire(lane, 1):
            return
        granted = asyncio.get_running_loop().create_future()
        waiter = _Waiter(URGENCY[lane], next(self._numbers), lane, granted)
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
        if self._has_others_before(lane):
            return 0
        taken = min(most, self.room(lane))
        self._take(lane, taken)
        return taken

    def _is_quiet(self) -> bool:
        since_s = self._clock() - self._realtime_at_s
        return not self._held[Lane.REALTIME] and since_s > QUIET_AFTER_S

    def _has_others_before(self, lane: Lane) -> bool:
        return bool(self._waiting) and self._waiting[0].urgency <= URGENCY[lane]

    def _take(self, lane: Lane, permits: int) -> None:
        self._held[lane] += permits
        if lane is Lane.REALTIME:
            self._saw_realtime()

    def _saw_realtime(self) -> None:
        self._realtime_at_s = self._clock()
        self._peak.see(self._held[Lane.REALTIME])

    def tick(self) -> None:
        """Hand out what is not kept any more. To be called now and then."""
        self._serve()

    def release(self, lane: Lane, permits: int = 1) -> None:
        """Give permits back."""
        if lane is Lane.REALTIME:
            # Those that ran for longer than a peak is remembered count, too.
            self._saw_realtime()
        self._held[lane] -= permits
        self._serve()

    async def stand_by(self) -> None:
        """Wait for a permit with which to wait for the next realtime request.

        To the lower lanes it is one of the places that they leave free, and so only for an engine
        that keeps any. Harmless when called again.
        """
        if not self.try_stand_by():
            await self.acquire(Lane.REALTIME)
            self._held[Lane.REALTIME] -= 1
            self._standing_by = True
            # What is kept does not depend on whether somebody stands by.
            self._serve()

    def try_stand_by(self) -> bool:
        """The same, if there is a permit now. Return whether there was."""
        if not self._standing_by:
            lane = Lane.REALTIME
            self._standing_by = not self._has_others_before(lane) and self.room(lane) > 0
        return self._standing_by

    def begin(self) -> None:
        """The request that was waited for has come: it holds the permit now.

        After a long quiet work may have that place. It is asked to give one up, and until it has
        the engine runs one more than its capacity.
        """
        self._standing_by = False
        self._take(Lane.REALTIME, 1)
        if self.in_use > self.capacity:
            self.reclaim()

    def _serve(self) -> None:
        """Hand out what is free. Where the first in line finds no room, nobody behind it does."""
        for waiter in list(self._waiting):
            if waiter.granted.cancelled():
                # It leaves the line by itself, at its next step.
                continue
            if not self.room(waiter.lane):
                return
            self._waiting.remove(waiter)
            self._held[waiter.lane] += 1
            waiter.granted.set_result(None)
