"""Batches that are under way, and what waits for engines in the database."""

from __future__ import annotations

from collections import deque
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import msgspec
from django.db.models import QuerySet

from gateway.live.engines import LaneQueue
from gateway.live.parts import Parts, encode
from gateway.live.reading import Reader
from inference.request import Lane
from jobs.models import Batch
from jobs.work.backlog import Backlog, read_backlog

# Those that end first; the list of batches has all of them.
_SHOWN = 50
_PACE_OVER_S = 300.0
# Before that the pace since the batch began says more.
_PACE_FROM_S = 30.0
# A forecast is no more exact than that.
_ROUND_S = 10
_LANES = (Lane.BACKGROUND, Lane.BATCH)


class BatchState(msgspec.Struct, frozen=True, kw_only=True):
    """An open batch. `forecast_s` is when it will have ended at its pace; None: not known."""

    id: str
    team: str
    model: str
    form: str
    status: str
    total: int
    ended: int
    failed: int
    created_at_s: int
    expires_at_s: int
    forecast_s: int | None


class OpenBatch(msgspec.Struct, frozen=True, kw_only=True):
    """What the database says of an open batch: fields of `jobs.models.Batch`."""

    id: str
    team_name: str
    model: str
    form: str
    status: str
    total: int
    completed: int
    failed: int
    cancelled: int
    expired: int
    created_at: datetime
    in_progress_at: datetime | None
    expires_at: datetime

    @property
    def ended(self) -> int:
        """How many rows have ended, whichever way."""
        return self.completed + self.failed + self.cancelled + self.expired


class Waiting(NamedTuple):
    """What waits for engines of one model: rows of batches, and background responses."""

    rows: int
    responses: int


class Found(NamedTuple):
    """What one look at the database has found."""

    backlog: Backlog
    batches: list[OpenBatch]


class _Seen(NamedTuple):
    at_s: float
    ended: int


class Work:
    """What will take its time."""

    name = "database"
    every_s = 2.0

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._seen: dict[str, deque[_Seen]] = {}
        self.parts: Parts = {}
        self.batches: list[BatchState] = []
        self.waiting: dict[str, Waiting] = {}

    async def look(self, now: datetime) -> None:
        """Read what is open."""
        found = await self._reader.read(partial(read_work, _SHOWN))
        self.see(found, now.timestamp())

    def see(self, found: Found, now_s: float) -> None:
        """Take what is open."""
        self._seen = {
            batch.id: _remember(self._seen.get(batch.id), _Seen(now_s, batch.ended))
            for batch in found.batches
        }
        self.batches = [_state(batch, self._seen[batch.id]) for batch in found.batches]
        states = {f"batch/{state.id}": encode(state) for state in self.batches}
        queues = {f"queue/{lane}": encode(_queue(found.backlog, lane)) for lane in _LANES}
        pending = found.backlog.pending
        self.waiting = {
            model: Waiting(pending[model, Lane.BATCH], pending[model, Lane.BACKGROUND])
            for model, _ in pending
        }
        open_ = sum(found.backlog.batches.values())
        self.parts = states | queues | {"batch": encode({"open": open_})}


def read_work(limit: int) -> Found:
    """Read what waits and runs, and those open batches whose windows end first."""
    rows: QuerySet[Any, dict[str, Any]] = (
        Batch.objects.filter(status__in=Batch.OPEN)
        .order_by("expires_at")
        .values(*OpenBatch.__struct_fields__)[:limit]
    )
    batches = [OpenBatch(**(row | {"id": str(row["id"])})) for row in rows]
    return Found(read_backlog(), batches)


def _remember(before: deque[_Seen] | None, seen: _Seen) -> deque[_Seen]:
    looks = before if before is not None else deque()
    while len(looks) > 1 and looks[0].at_s < seen.at_s - _PACE_OVER_S:
        looks.popleft()
    looks.append(seen)
    return looks


def _state(batch: OpenBatch, looks: deque[_Seen]) -> BatchState:
    return BatchState(
        id=batch.id,
        team=batch.team_name,
        model=batch.model,
        form=batch.form,
        status=batch.status,
        total=batch.total,
        ended=batch.ended,
        failed=batch.failed,
        created_at_s=round(batch.created_at.timestamp()),
        expires_at_s=round(batch.expires_at.timestamp()),
        forecast_s=_forecast_s(batch, looks),
    )


def _forecast_s(batch: OpenBatch, looks: deque[_Seen]) -> int | None:
    """Return when the rest has ended at the pace of the last minutes, or since the beginning."""
    if batch.in_progress_at is None or batch.status != Batch.Status.IN_PROGRESS:
        return None
    last, first = looks[-1], looks[0]
    if last.at_s - first.at_s < _PACE_FROM_S:
        first = _Seen(batch.in_progress_at.timestamp(), 0)
    done, passed_s = last.ended - first.ended, last.at_s - first.at_s
    if done <= 0 or passed_s <= 0:
        return None
    return _rounded(last.at_s + (batch.total - last.ended) * passed_s / done)


def _rounded(at_s: float) -> int:
    return round(at_s / _ROUND_S) * _ROUND_S


def _queue(backlog: Backlog, lane: Lane) -> LaneQueue:
    since = [at.timestamp() for (_, of), at in backlog.oldest.items() if of == lane]
    return LaneQueue(
        waiting=sum(count for (_, of), count in backlog.pending.items() if of == lane),
        since_s=min(since, default=None),
        running=sum(count for (_, of), count in backlog.running.items() if of == lane),
    )
