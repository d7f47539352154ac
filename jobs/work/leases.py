"""Leases: what an engine has is its own until its lease ends, and goes back then.

The database's clock decides, whatever those of engines say. An engine's row is locked while it
takes work, so that no lease can end just then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from uuid import UUID

from django.db import connection, transaction

from inference.errors import ErrorCode
from jobs.models import RequestRecord, Worker
from jobs.recorder import rows as trail
from jobs.recorder.settling import Settlement, settlements
from jobs.work import metric_counts, policy, rows
from jobs.work.credit import released
from jobs.work.ending import Ended, Outcome, keep_unserved
from jobs.work.rows import Row

# Renewed every two seconds: an engine is taken for dead when it has failed to four times.
LEASE_S = 10
_WORKERS = Worker._meta.db_table
_POISON = (
    f"it was running in {policy.MAX_DEATHS} engines when they died, the last time by itself; "
    "it is not tried again"
)

_OPEN = f"""
INSERT INTO {_WORKERS} (id, model, host, expires_at)
VALUES (%s, %s, %s, now() + make_interval(secs => {LEASE_S}))
ON CONFLICT (id) DO UPDATE SET expires_at = EXCLUDED.expires_at
"""  # noqa: S608
_RENEW = f"""
UPDATE {_WORKERS} SET expires_at = now() + make_interval(secs => {LEASE_S}) WHERE id = %s
"""  # noqa: S608
_KEPT = f"""
SELECT id::text FROM {rows.TABLE}
WHERE worker_id = %s AND state = 'running' AND NOT cancel_requested
"""  # noqa: S608
_END_OVERDUE = f"""
DELETE FROM {_WORKERS} WHERE id IN (
    SELECT id FROM {_WORKERS} WHERE expires_at < now() ORDER BY id FOR UPDATE SKIP LOCKED
) RETURNING id, expires_at
"""  # noqa: S608
_BACK = f"""
UPDATE {rows.TABLE} AS work
SET state = 'pending', worker_id = NULL, not_before = back.not_before,
    attempts = work.attempts + %s, deaths = work.deaths + %s, preemptions = work.preemptions + %s
FROM unnest(%s::uuid[], %s::timestamptz[]) AS back (id, not_before)
WHERE work.id = back.id
"""  # noqa: S608


class Back(Enum):
    """Why a row goes back. The values are what that adds to its attempts, deaths and preemptions.

    A row counts an attempt as it is taken.
    """

    UNTOUCHED = (-1, 0, 0)
    PREEMPTED = (-1, 0, 1)
    FAILED = (0, 0, 0)
    DIED = (0, 1, 0)


def open_lease(worker_id: str, model: str, host: str) -> None:
    """Begin an engine's lease, or begin it anew."""
    with connection.cursor() as cursor:
        cursor.execute(_OPEN, [worker_id, model, host])


def renew(worker_id: str) -> set[str] | None:
    """Renew a lease; return the ids of what is the engine's and to be gone on with.

    None: the lease is over, and everything has gone back.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_RENEW, [worker_id])
        if not cursor.rowcount:
            return None
        cursor.execute(_KEPT, [worker_id])
        return {request_id for (request_id,) in cursor.fetchall()}


def is_held(worker_id: str) -> bool:
    """Whether a lease holds, and keep it so until the end of the caller's transaction."""
    held = Worker.objects.select_for_update(of=("self",), no_key=True).filter(pk=worker_id)
    return held.exists()


def give_back(
    worker_id: str, request_ids: Collection[str], now: datetime, *, preempted: bool = False
) -> list[Settlement]:
    """Put back what an engine has taken; return what to tell the quota after the commit.

    `preempted`: it had begun, and its place was needed. That is counted, and is no fault.
    """
    with transaction.atomic():
        taken = rows.lock(
            "id = ANY(%s::uuid[]) AND worker_id = %s AND state = 'running'",
            [list(request_ids), worker_id],
        )
        return put_back(taken, now, Back.PREEMPTED if preempted else Back.UNTOUCHED)


def close(worker_id: str, now: datetime) -> list[Settlement]:
    """End a lease in good order; all that is still the engine's goes back."""
    with transaction.atomic():
        Worker.objects.filter(pk=worker_id).delete()
        taken = rows.lock("worker_id = %s AND state = 'running'", [worker_id])
        return put_back(taken, now, Back.UNTOUCHED)


def reap(now: datetime) -> list[Settlement]:
    """Put back what engines had whose leases are over: they have died. Harmless at any time."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(_END_OVERDUE)
            dead = dict(cursor.fetchall())
        if not dead:
            return []
        taken = rows.lock("worker_id = ANY(%s::uuid[]) AND state = 'running'", [list(dead)])
        return _last_words(dead, now) + put_back(taken, now, Back.DIED)


def _last_words(dead: Mapping[UUID, datetime], now: datetime) -> list[Settlement]:
    """Return what engines ended last, by when their leases did: the quota may not know of it."""
    ended = RequestRecord.objects.filter(
        engine_id__in=list(dead),
        settled_at__gte=min(dead.values()) - timedelta(seconds=2 * LEASE_S),
        # What is sealed is older than that, and not indexed by when it was settled.
        seal__isnull=True,
    )
    ids = [str(request_id) for request_id in ended.values_list("pk", flat=True)]
    return settlements(trail.load(ids).values(), now)


def put_back(taken: Sequence[Row], now: datetime, why: Back) -> list[Settlement]:
    """Put locked rows back; those that were cancelled meanwhile, or must not run again, end."""
    died = why is Back.DIED
    over = [ended for row in taken if (ended := _over(row, died=died))]
    ended_ids = {each.row.id for each in over}
    back = [row for row in taken if row.id not in ended_ids]
    times = [now + policy.pause_after(row.deaths + 1) if died else None for row in back]
    return_rows([row.id for row in back], times, why)
    if died:
        metric_counts.count_deaths(row.model for row in taken)
    return released(back) + keep_unserved(over, now)


def return_rows(ids: Sequence[UUID], not_before: Sequence[datetime | None], why: Back) -> None:
    """Let locked rows wait again, each until its time. Their place in the order is as it was."""
    if ids:
        with connection.cursor() as cursor:
            cursor.execute(_BACK, [*why.value, list(ids), list(not_before)])


def _over(row: Row, *, died: bool) -> Ended | None:
    if row.cancel_requested:
        return Ended(row=row, outcome=Outcome.CANCELLED, code=ErrorCode.CANCELLED)
    if died and policy.is_poison(row.deaths + 1):
        return Ended(row=row, outcome=Outcome.FAILED, code=ErrorCode.ENGINE_LOST, message=_POISON)
    return None
