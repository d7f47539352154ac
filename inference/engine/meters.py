"""Measures what requests saw of an engine: once for each attempt, when it is over."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

from inference.admission import Admission
from inference.backends.port import Tally
from inference.pace_stats import PaceStats
from inference.request import Lane
from inference.transport.figures import (
    PACE_BOUNDS_S,
    WAIT_BOUNDS_S,
    Attainment,
    Histogram,
    LaneFigures,
)


class Measured(NamedTuple):
    """One attempt that is over. Times are in seconds of Unix time.

    `queued_at_s` is by Redis' clock, and None for what waits in the database: that is meant to
    wait. `first_tokens` is how many tokens had been put out when the first event was said: text
    may be held back, and a call of a tool comes in one piece.
    """

    lane: Lane
    queued_at_s: float | None
    taken_at_s: float
    first_token_at_s: float | None
    first_tokens: int
    ended_at_s: float
    tally: Tally

    @property
    def queue_time_s(self) -> float:
        """How long it waited to be taken; 0 where two machines' clocks say less."""
        if self.queued_at_s is None:
            return 0.0
        return max(0.0, self.taken_at_s - self.queued_at_s)

    @property
    def time_to_first_token_s(self) -> float | None:
        """From when it was taken to its first token, if there was one."""
        if self.first_token_at_s is None:
            return None
        return self.first_token_at_s - self.taken_at_s

    @property
    def time_per_output_token_s(self) -> float | None:
        """The average time from one token to the next, if there was more than one."""
        tokens = self.tally.output_tokens - self.first_tokens
        if self.first_token_at_s is None or tokens <= 0:
            return None
        return (self.ended_at_s - self.first_token_at_s) / tokens


class _Times:
    """A histogram that grows."""

    def __init__(self, bounds_s: tuple[float, ...]) -> None:
        self._bounds_s = bounds_s
        self._counts = [0] * (len(bounds_s) + 1)
        self._sum_s = 0.0

    def add(self, time_s: float | None) -> None:
        """Take a time in, if there is one."""
        if time_s is not None:
            self._counts[bisect_left(self._bounds_s, time_s)] += 1
            self._sum_s += time_s

    def read(self) -> Histogram:
        """Return what it has come to."""
        counts = tuple(self._counts)
        return Histogram(counts, self._sum_s) if any(counts) else Histogram()


class _LaneMeter:
    """What is measured of one lane."""

    def __init__(self) -> None:
        self._input = self._cached = self._output = 0
        self._queue_time = _Times(WAIT_BOUNDS_S)
        self._first_token = _Times(WAIT_BOUNDS_S)
        self._per_token = _Times(PACE_BOUNDS_S)

    def count(self, measured: Measured) -> None:
        """Take an attempt in."""
        self._input += measured.tally.prompt_tokens
        self._cached += measured.tally.cached_tokens
        self._output += measured.tally.output_tokens
        if measured.queued_at_s is not None:
            self._queue_time.add(measured.queue_time_s)
        self._first_token.add(measured.time_to_first_token_s)
        self._per_token.add(measured.time_per_output_token_s)

    def read(self, permits: int) -> LaneFigures:
        """Return what it has come to."""
        return LaneFigures(
            permits=permits,
            input_tokens=self._input,
            cached_tokens=self._cached,
            output_tokens=self._output,
            queue_time=self._queue_time.read(),
            time_to_first_token=self._first_token.read(),
            time_per_output_token=self._per_token.read(),
        )


class Meters:
    """What is measured of each lane. Counts on the engine's loop; any thread may read."""

    def __init__(self) -> None:
        self._lanes = {lane: _LaneMeter() for lane in Lane}
        # Met and missed.
        self._ttft = [0, 0]
        self._itl = [0, 0]

    def count(self, measured: Measured, pace: PaceStats | None = None) -> None:
        """Take in an attempt that is over, with the targets as they are then, if there are any."""
        self._lanes[measured.lane].count(measured)
        if pace is not None and measured.lane is Lane.REALTIME:
            self._compare(measured, pace)

    def _compare(self, measured: Measured, pace: PaceStats) -> None:
        """A request that never had a token has missed its target once that is over, not before."""
        first_s = measured.time_to_first_token_s
        waited_s = measured.ended_at_s - measured.taken_at_s if first_s is None else first_s
        missed = measured.queue_time_s + waited_s > pace.ttft_target_s
        if missed or first_s is not None:
            self._ttft[missed] += 1
        per_token_s = measured.time_per_output_token_s
        if per_token_s is not None:
            self._itl[per_token_s > pace.itl_target_s] += 1

    def lanes(self, lanes: Iterable[Lane], admission: Admission) -> dict[Lane, LaneFigures]:
        """Return what some lanes have come to."""
        return {lane: self._lanes[lane].read(admission.held(lane)) for lane in lanes}

    @property
    def attained(self) -> Attainment:
        """How often realtime's targets were met."""
        return Attainment(*self._ttft, *self._itl)
