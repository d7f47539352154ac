"""A frontier instead of one number: the most requests/s within each bound on first tokens."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from tests.benchmarks.rounds import Round, Spread, percentile


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One arm with so many requests at once. `p99_ms` is of the first tokens of all its rounds."""

    at_once: int
    requests_per_s: Spread
    p99_ms: float
    whole: bool

    @classmethod
    def of(cls, at_once: int, rounds: Iterable[Round]) -> Self | None:
        """Sum up the sound rounds; None if the client spoilt them all."""
        sound = [each for each in rounds if each.is_sound]
        if not sound:
            return None
        samples = [sample for each in sound for sample in each.samples]
        return cls(
            at_once=at_once,
            requests_per_s=Spread.of(each.requests_per_s for each in sound),
            p99_ms=percentile((first for each in sound for first in each.first_ms), 0.99),
            whole=not any(sample.error for sample in samples),
        )


def best(rungs: Iterable[Rung], bound_ms: float = math.inf) -> Rung | None:
    """Return the rung with the most requests/s of those with whole answers within the bound."""
    met = [rung for rung in rungs if rung.whole and rung.p99_ms <= bound_ms]
    return max(met, key=lambda rung: rung.requests_per_s.median, default=None)


def closest(
    ours: Sequence[Rung], theirs: Sequence[Rung], bounds_ms: Iterable[float]
) -> tuple[float, float] | None:
    """Return the bound at which theirs comes closest to ours, and how many times theirs ours is.

    None if there is no bound that both have met.
    """
    both = [(bound_ms, best(ours, bound_ms), best(theirs, bound_ms)) for bound_ms in bounds_ms]
    ratios = [
        (bound_ms, own.requests_per_s.median / other.requests_per_s.median)
        for bound_ms, own, other in both
        if own and other
    ]
    return min(ratios, key=lambda pair: pair[1], default=None)
