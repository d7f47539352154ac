"""Ends work that nobody will run, cancelled with its batch or late, and lets the urgent rise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from inference.errors import ErrorCode
from jobs.recorder.settling import Settlement
from jobs.work import counts, metric_counts, rows
from jobs.work.counts import Sums
from jobs.work.ending import LATE, Ended, Outcome, keep_unserved
from jobs.work.policy import URGENT_AT_LEAST, URGENT_AT_MOST, URGENT_RANK, URGENT_SHARE

# So many rows change in one transaction: for so long their batch is locked.
_AT_ONCE = 5_000
# Each of these has a record of its own.
_TOLD_AT_ONCE = 200
# An engine ends its work at its deadline, and needs a moment to say so.
_GRACE = timedelta(seconds=30)

# No record: nothing was done that the trail could tell of, and the batch has the row.
_END = f"""
WITH chosen AS (
    SELECT id FROM {rows.TABLE}
    WHERE {{condition}} LIMIT {_AT_ONCE} FOR NO KEY UPDATE {{lock}}
)
UPDATE {rows.TABLE} AS work
SET state = 'done', request = '', ended_at = %s, outcome = %s
FROM chosen WHERE work.id = chosen.id
RETURNING work.batch_id, work.model
"""  # noqa: S608
_OF_BATCH = _END.format(condition="batch_id = %s AND state = 'pending' ORDER BY line", lock="")
# Whoever has the others ends them, or they are there at the next look.
_LATE_ROWS = _END.format(
    condition=(
        "NOT (state = 'done') AND state = 'pending' AND batch_id IS NOT NULL"
        " AND deadline_at <= %s ORDER BY deadline_at"
    ),
    lock="SKIP LOCKED",
)
_LATE_OTHERS = f"""
id IN (
    SELECT id FROM {rows.TABLE}
    WHERE NOT (state = 'done') AND deadline_at <= %s
        AND (state = 'pending' AND batch_id IS NULL OR state = 'running' AND deadline_at <= %s)
    ORDER BY deadline_at LIMIT {_TOLD_AT_ONCE} FOR NO KEY UPDATE SKIP LOCKED
)
"""  # noqa: S608
_AT_MOST, _AT_LEAST = (
    f"interval '{bound.total_seconds():.0f} seconds'" for bound in (URGENT_AT_MOST, URGENT_AT_LEAST)
)
_RISE = f"""
UPDATE {rows.TABLE} SET rank = {URGENT_RANK} WHERE id IN (
    SELECT id FROM {rows.TABLE}
    WHERE NOT (state = 'done') AND state = 'pending' AND rank > {URGENT_RANK}
        AND deadline_at <= %(now)s + {_AT_MOST}
        AND deadline_at <= %(now)s + greatest(
            (deadline_at - created_at) * {URGENT_SHARE},
            least({_AT_LEAST}, (deadline_at - created_at) / 2)
        )
    ORDER BY deadline_at LIMIT {_AT_ONCE} FOR NO KEY UPDATE SKIP LOCKED
)
"""  # noqa: S608


def cancel_batch(batch_id: UUID, now: datetime) -> int:
    """Cancel the rows of a batch that wait, in chunks; return how many."""
    return _end_all(_OF_BATCH, [batch_id], Outcome.CANCELLED, now)


def expire(now: datetime) -> tuple[int, list[Settlement]]:
    """End what has not ended at its deadline: what waits, and soon after what should run.

    Returns how many, and what to tell the quota. An engine that still is at it has lost it then.
    """
    ended = _end_all(_LATE_ROWS, [now], Outcome.EXPIRED, now)
    untold: list[Settlement] = []
    while True:
        with transaction.atomic():
            late = rows.lock(_LATE_OTHERS, [now, now - _GRACE])
            over = [
                Ended(row=row, outcome=Outcome.EXPIRED, code=ErrorCode.EXPIRED, message=LATE)
                for row in late
            ]
            untold += keep_unserved(over, now)
        ended += len(late)
        if len(late) < _TOLD_AT_ONCE:
            return ended, untold


def rise(now: datetime) -> int:
    """Let what waits and is near its deadline go before the rest; return how many did."""
    risen = 0
    while True:
        with connection.cursor() as cursor:
            cursor.execute(_RISE, {"now": now})
            changed = int(cursor.rowcount)
            risen += changed
            if changed < _AT_ONCE:
                return risen


def _end_all(statement: str, parameters: Sequence[Any], outcome: Outcome, now: datetime) -> int:
    total = 0
    while True:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute(statement, [*parameters, now, outcome.value])
                found = cursor.fetchall()
            ended = Counter(batch_id for batch_id, _ in found)
            sums = {batch_id: Sums(**{outcome.value: n}) for batch_id, n in ended.items()}
            counts.count(sums, now)
            metric_counts.count_ended((model, outcome.value) for _, model in found)
        rows_ended = sum(ended.values())
        total += rows_ended
        if rows_ended < _AT_ONCE:
            return total
