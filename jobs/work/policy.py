"""What is decided about work, without a database or a clock: its urgency, and what follows a fault.

A row that was running when an engine died is run again, since engines die of much that no row is to
blame for. Was it running in three that died, it is run alone, so that a fourth death is its own.
"""

from __future__ import annotations

from datetime import timedelta

from inference.errors import ErrorCode
from inference.request import Lane

URGENT_RANK = 1
_RANKS = {Lane.BACKGROUND: 2, Lane.BATCH: 3}
# The last tenth of a window is urgent: at most an hour, so that a team that asked for more than it
# gets done does not hold up all others for long, and at least ten minutes or, if the window is
# short, half of it, so that nobody is ahead of all others by asking for a short one.
URGENT_SHARE = 0.1
URGENT_AT_MOST = timedelta(hours=1)
URGENT_AT_LEAST = timedelta(minutes=10)

ALONE_AFTER_DEATHS = 3
MAX_DEATHS = 4
_FIRST_PAUSE = timedelta(seconds=1)
_MAX_ATTEMPTS = 3
# Nobody's fault that a second attempt could not do without. (What an engine fails by itself, it
# gives back and does not end.)
_PASSING = frozenset(
    {
        ErrorCode.INTERNAL,
        ErrorCode.NO_ENGINE,
        ErrorCode.UNAVAILABLE,
        ErrorCode.OVERLOADED,
        ErrorCode.RESOURCE_UNAVAILABLE,
    }
)


def rank(lane: Lane) -> int:
    """Return a lane's place among what waits: lower ones run first."""
    return _RANKS[lane]


def runs_alone(deaths: int) -> bool:
    """Whether it is run with no other work beside it."""
    return deaths >= ALONE_AFTER_DEATHS


def is_poison(deaths: int) -> bool:
    """Whether it is not run again, after that many engines died while it ran."""
    return deaths >= MAX_DEATHS


def is_final(code: ErrorCode, attempts: int) -> bool:
    """Whether work that failed so, after that many attempts, has failed for good."""
    return code not in _PASSING or attempts >= _MAX_ATTEMPTS


def pause_after(faults: int) -> timedelta:
    """Return how long work is left alone after so many deaths of its engine, or failures."""
    return _FIRST_PAUSE * float(2 ** min(max(faults, 1) - 1, MAX_DEATHS))
