"""When an upstream is asked, asked again, and left alone."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from inference.errors import ErrorCode, TandemError
from inference.events import RawAnswer
from inference.request import Lane

OPEN_AFTER = 5
"""Failures in a row after which an upstream is left alone."""

OPEN_S = 15.0
"""How long it is, before one request tries it again."""

WINDOW_S = 60.0
"""What requests per minute are counted over."""

_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 8.0
_LONGEST_PATIENT_PAUSE_S = 60.0
# Another request is trying it.
_PROBE_PAUSE_S = 1.0
# Of the requests within a minute, what those may not use that can wait.
_KEPT_SHARE = 0.25

# These can wait: nobody holds a connection open for them, and no row fails by an upstream that is
# away for a while.
_PATIENT = (Lane.BACKGROUND, Lane.BATCH)
_WORTH_WAITING = (
    ErrorCode.UNAVAILABLE,
    ErrorCode.OVERLOADED,
    ErrorCode.RESOURCE_UNAVAILABLE,
    ErrorCode.TIMEOUT,
)

Clock = Callable[[], float]
Sleep = Callable[[float], Awaitable[None]]


class UpstreamError(TandemError):
    """Why an upstream gave no answer.

    `passing`: the same request may fare better at once. `down`: it did not answer at all, or as
    something broken does. `answer` is what it said, for a caller who is to have it as it is, and
    `kept_back` what only the operator is told.
    """

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        *,
        passing: bool = False,
        down: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(code, message, retry_after_s=retry_after_s)
        self.passing = passing
        self.down = down
        self.answer: RawAnswer | None = None
        self.kept_back = ""


class CircuitOpenError(UpstreamError):
    """The upstream is left alone for now."""


def is_patient(lane: Lane) -> bool:
    """Whether requests of that lane wait for an upstream until their deadline."""
    return lane in _PATIENT


def pause_s(error: UpstreamError, *, tries: int, retries: int, patient: bool) -> float | None:
    """Return how long to wait before the next try, or None if there is none to be.

    `tries` have failed. How long the upstream asks to be left alone counts, unless that is longer
    than somebody at the other end wants to wait.
    """
    if not _is_worth_it(error, tries, retries, patient=patient):
        return None
    longest_s = _LONGEST_PATIENT_PAUSE_S if patient else _LONGEST_PAUSE_S
    asked_s = error.retry_after_s or 0.0
    if asked_s > longest_s and not patient:
        return None
    # An upstream that is away for a day must not raise two to a power beyond all numbers.
    doubled_s = _FIRST_PAUSE_S * float(2 ** min(tries - 1, 16))
    return max(asked_s, min(doubled_s, longest_s) * random.uniform(0.75, 1))


def _is_worth_it(error: UpstreamError, tries: int, retries: int, *, patient: bool) -> bool:
    if not patient:
        return error.passing and tries <= retries
    if error.code is ErrorCode.TIMEOUT and not error.down:
        # It takes longer than it may, and would again: each try costs what an answer does.
        return tries <= retries
    return error.code in _WORTH_WAITING


class Passage:
    """One request's way through the breaker, or past it."""

    def __init__(self, breaker: CircuitBreaker | None) -> None:
        self._breaker = breaker

    def answered(self) -> None:
        """Note that the upstream is there."""
        if self._breaker is not None:
            self._breaker.note(alive=True)


class CircuitBreaker:
    """Leaves an upstream alone that has failed several times in a row.

    Closed: everybody passes. Open, for `OPEN_S`: nobody does. After that it is half open: one
    request passes, and how that fares decides. Times are those of `clock`, in seconds.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._failures = 0
        self._open_until_s = 0.0
        self._probing = False

    @contextmanager
    def passing(self) -> Iterator[Passage]:
        """Let one request through. Raises `UpstreamError`, and takes note of one that is raised."""
        is_probe = self._admit()
        try:
            yield Passage(self)
        except UpstreamError as error:
            self.note(alive=not error.down)
            raise
        finally:
            if is_probe:
                self._probing = False

    @contextmanager
    def passing_by(self) -> Iterator[Passage]:
        """Let one request through whose fate decides nothing. Raises `UpstreamError` while open."""
        if self._failures >= OPEN_AFTER and self._left_s() > 0:
            raise self._refusal()
        yield Passage(None)

    def note(self, *, alive: bool) -> None:
        """Count a failure, or forget those that were."""
        self._failures = 0 if alive else self._failures + 1
        if self._failures >= OPEN_AFTER:
            self._open_until_s = self._clock() + OPEN_S

    def _admit(self) -> bool:
        """Return whether this request is the one that tries it again."""
        if self._failures < OPEN_AFTER:
            return False
        if self._left_s() <= 0 and not self._probing:
            self._probing = True
            return True
        raise self._refusal()

    def _left_s(self) -> float:
        return self._open_until_s - self._clock()

    def _refusal(self) -> CircuitOpenError:
        return CircuitOpenError(
            ErrorCode.UNAVAILABLE,
            f"the upstream failed {self._failures} times in a row and is left alone for a while",
            retry_after_s=max(self._left_s(), _PROBE_PAUSE_S),
        )


class RateLimiter:
    """Sends no more than so many requests within any minute; the rest wait.

    Work that can wait leaves a quarter of them, rounded up, so that realtime finds some.
    """

    def __init__(
        self,
        per_minute: int | None,
        clock: Clock = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._sleep = sleep
        self._sent_s: deque[float] = deque()

    async def take(self, *, patient: bool) -> None:
        """Wait until a request may be sent, and count it."""
        if self._per_minute is None:
            return
        limit = self._per_minute
        if patient:
            limit = max(1, limit - math.ceil(limit * _KEPT_SHARE))
        while wait_s := self._wait_s(limit):
            await self._sleep(wait_s)
        self._sent_s.append(self._clock())

    def _wait_s(self, limit: int) -> float:
        now_s = self._clock()
        while self._sent_s and self._sent_s[0] + WINDOW_S <= now_s:
            self._sent_s.popleft()
        if len(self._sent_s) < limit:
            return 0.0
        return self._sent_s[-limit] + WINDOW_S - now_s
