"""Adds requests up by the minute in which they ended, in the transaction that settles them.

A request counts from when its row is settled, and for what its row says. One that was counted and
changes is taken out as it was and put in as it is, so that records may come twice and in any order
and the sums are always those of the rows. Sums are written in one order everywhere, after
accounts: two who settle at the same time never wait for each other in a ring.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from typing import NamedTuple

import msgspec

from inference.request import Lane
from jobs.bulk import insert
from jobs.latency import BUCKETS, bucket_of
from jobs.minutes import KEPT
from jobs.models import LatencyMinute, RequestMinute, RequestRecord
from jobs.recorder import rows
from jobs.recorder.rows import Row

# Where somebody waits for the answer. Only the recorder settles these: nobody waits for the locks.
TIMED_LANES = frozenset({Lane.REALTIME.value, Lane.FLEX.value})

_ENDED = {RequestRecord.Status.COMPLETED.value, RequestRecord.Status.CANCELLED.value}
_OUTCOME_LIMIT = 50


class Share(NamedTuple):
    """What one settled request counts for. A time that is not known is None."""

    minute: datetime
    team_id: int
    model: str
    lane: str
    outcome: str
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    cost_micros: int
    first_token: int | None
    between_tokens: int | None


class _Requests(msgspec.Struct, kw_only=True):
    """The columns of a `RequestMinute`, but for its id."""

    minute: datetime
    team_id: int
    model: str
    lane: str
    outcome: str
    requests: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    cost_micros: int = 0


class _Times(msgspec.Struct, kw_only=True):
    """The columns of a `LatencyMinute`, but for its id."""

    minute: datetime
    model: str
    lane: str
    first_token: list[int]
    between_tokens: list[int]


_KEY = ("minute", "team_id", "model", "lane", "outcome")
_SUMS = ("requests", "input_tokens", "cached_tokens", "output_tokens", "cost_micros")
_ADD = "ON CONFLICT (minute, team_id, model, lane, outcome) DO UPDATE SET " + ", ".join(
    f"{name} = jobs_requestminute.{name} + EXCLUDED.{name}" for name in _SUMS
)
_BOTH = (
    "{0} = ARRAY(SELECT coalesce(one, 0) + coalesce(other, 0)"
    " FROM unnest(jobs_latencyminute.{0}, EXCLUDED.{0})"
    " WITH ORDINALITY AS both_of (one, other, place) ORDER BY place)"
)
_ADD_TIMES = "ON CONFLICT (minute, model, lane) DO UPDATE SET " + ", ".join(
    map(_BOTH.format, ("first_token", "between_tokens"))
)


def shares(known: Iterable[Row]) -> dict[str, Share]:
    """Return what those of these rows count for that are settled."""
    return {row.id: _share(row) for row in known if row.settled_at is not None}


def count(changed: Sequence[Row], before: Mapping[str, Share], now: datetime) -> None:
    """Count rows that were just saved, in the same transaction; `before`: what they counted for.

    Minutes that are so old that they are pruned are left alone.
    """
    # What is sealed was not saved.
    left = rows.sealed([row.id for row in changed if row.id in before])
    sums = _Minutes(now - KEPT)
    for row in changed:
        if row.id in left:
            continue
        if row.id in before:
            sums.add(before[row.id], -1)
        if row.settled_at is not None:
            sums.add(_share(row), 1)
    sums.save()


class _Minutes:
    """What one transaction changes about minutes."""

    def __init__(self, first: datetime) -> None:
        self._first = first
        self._requests: dict[tuple[datetime, int, str, str, str], _Requests] = {}
        self._times: dict[tuple[datetime, str, str], _Times] = {}

    def add(self, share: Share, count: int) -> None:
        """Put a request in, or take it out with a count of -1."""
        if share.minute < self._first:
            return
        key = share[:5]
        if (sums := self._requests.get(key)) is None:
            sums = self._requests[key] = _new_sums(share)
        sums.requests += count
        sums.input_tokens += count * share.input_tokens
        sums.cached_tokens += count * share.cached_tokens
        sums.output_tokens += count * share.output_tokens
        sums.cost_micros += count * share.cost_micros
        if share.first_token is not None:
            self._of(share).first_token[share.first_token] += count
        if share.between_tokens is not None:
            self._of(share).between_tokens[share.between_tokens] += count

    def _of(self, share: Share) -> _Times:
        key = (share.minute, share.model, share.lane)
        if (times := self._times.get(key)) is None:
            minute, model, lane = key
            times = self._times[key] = _Times(
                minute=minute,
                model=model,
                lane=lane,
                first_token=[0] * BUCKETS,
                between_tokens=[0] * BUCKETS,
            )
        return times

    def save(self) -> None:
        """Add what is not nothing to what is there, in the order of the keys."""
        changed = [sums for sums in self._requests.values() if any(attrgetter(*_SUMS)(sums))]
        insert(RequestMinute, sorted(changed, key=attrgetter(*_KEY)), _ADD)
        times = [
            each for each in self._times.values() if any(each.first_token + each.between_tokens)
        ]
        insert(LatencyMinute, sorted(times, key=attrgetter("minute", "model", "lane")), _ADD_TIMES)


def _new_sums(share: Share) -> _Requests:
    return _Requests(
        minute=share.minute,
        team_id=share.team_id,
        model=share.model,
        lane=share.lane,
        outcome=share.outcome,
    )


def _share(row: Row) -> Share:
    timed = row.lane in TIMED_LANES
    return Share(
        minute=_minute(row),
        team_id=row.team_id,
        model=row.model,
        lane=row.lane,
        outcome=_outcome(row),
        input_tokens=row.input_tokens,
        cached_tokens=row.cached_tokens,
        output_tokens=row.output_tokens,
        cost_micros=row.cost_micros or 0,
        first_token=_first_token(row) if timed else None,
        between_tokens=_between_tokens(row) if timed else None,
    )


def _minute(row: Row) -> datetime:
    ended_at = row.closed_at or row.engine_ended_at or row.settled_at or row.created_at
    return ended_at.astimezone(UTC).replace(second=0, microsecond=0)


def _outcome(row: Row) -> str:
    if row.status in _ENDED:
        return row.status
    return (row.detail or row.ending or row.status)[:_OUTCOME_LIMIT]


def _first_token(row: Row) -> int | None:
    if row.first_token_at is None:
        return None
    return bucket_of((row.first_token_at - row.created_at).total_seconds())


def _between_tokens(row: Row) -> int | None:
    """From the gateway's first token to its last, by one clock: an engine's may be another's."""
    if row.first_token_at is None or row.closed_at is None or row.output_tokens < 2:
        return None
    passed_s = (row.closed_at - row.first_token_at).total_seconds()
    return bucket_of(passed_s / (row.output_tokens - 1))
