"""When each thing happened to a request, and what it waited for meanwhile. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple

from jobs.models import RequestRecord, Work

_WIDTH = 1000
"""Of the whole bar, in units of the drawing."""

_WAITED = ("waited", "Waited for a place")


class Moment(NamedTuple):
    """Something that happened, and how many seconds after the admission."""

    name: str
    at: datetime
    after_s: float


class Phase(NamedTuple):
    """What a request was doing for `seconds`, and where that is in a bar of 1000 units."""

    kind: str
    name: str
    seconds: float
    x: int
    width: int


def moments_of(record: RequestRecord) -> list[Moment]:
    """Return a request's moments as the trail has them, in the order of time."""
    known = [
        ("admitted", record.created_at),
        ("taken by the engine", record.taken_at),
        ("first token", record.first_token_at),
        ("ended by the engine", record.engine_ended_at),
        ("answer ended", record.closed_at),
        ("settled", record.settled_at),
    ]
    return _moments(record.created_at, known)


def moments_of_work(work: Work) -> list[Moment]:
    """Return the moments of what is not in the trail yet."""
    known = [
        ("accepted", work.created_at),
        ("taken by an engine", work.taken_at),
        ("to be tried again", work.not_before),
        ("ended", work.ended_at),
    ]
    return _moments(work.created_at, known)


def phases_of(record: RequestRecord, now: datetime) -> list[Phase]:
    """Return what the time until the end of the answer went into; until now if there is none."""
    end = record.engine_ended_at or record.closed_at or now
    last = ("answered", "Answered")
    if record.first_token_at is None:
        last = ("read", "In the engine, without a token") if record.taken_at else _WAITED
    marks = [
        ("", "", record.created_at),
        (*_WAITED, record.taken_at),
        ("read", "Read the prompt", record.first_token_at),
        (*last, end),
    ]
    # Clocks of two machines may differ: nothing ends before it began.
    known = [(kind, name, max(at, record.created_at)) for kind, name, at in marks if at]
    return list(_phases(known))


def _phases(marks: list[tuple[str, str, datetime]]) -> Iterator[Phase]:
    total_s = max((marks[-1][2] - marks[0][2]).total_seconds(), 1e-6)
    x = 0.0
    for (_, _, begin), (kind, name, end) in pairwise(marks):
        seconds = max((end - begin).total_seconds(), 0.0)
        width = seconds / total_s * _WIDTH
        # What is too short to be seen is drawn all the same.
        yield Phase(kind, name, seconds, round(min(x, _WIDTH - 2)), max(round(width), 2))
        x += width


def _moments(begin: datetime, known: Iterable[tuple[str, datetime | None]]) -> list[Moment]:
    found = [(name, at) for name, at in known if at is not None]
    found.sort(key=lambda each: each[1])
    return [Moment(name, at, (at - begin).total_seconds()) for name, at in found]
