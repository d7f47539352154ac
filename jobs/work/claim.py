"""Takes work for an engine: the most urgent first, as long as its team can pay for it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec
from django.db import connection, transaction

from inference.engine.work import WorkItem
from inference.errors import ErrorCode
from inference.request import GenerationRequest
from jobs.models import StoredResponse
from jobs.packing import unpack_request
from jobs.recorder.settling import Settlement
from jobs.work import leases, policy, rows
from jobs.work.credit import Credit
from jobs.work.ending import Ended, Outcome, keep_unserved
from jobs.work.records import Engine
from jobs.work.rows import Row

_CLAIM = f"""
WITH next AS (
    SELECT id FROM {rows.TABLE}
    WHERE state = 'pending' AND model = %s AND team_id <> ALL(%s::bigint[])
        AND deadline_at > now() AND (not_before IS NULL OR not_before <= now())
    ORDER BY rank, deadline_at, id LIMIT %s FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE {rows.TABLE} AS work
SET state = 'running', worker_id = %s, attempts = attempts + 1, taken_at = now(), not_before = NULL
FROM next WHERE work.id = next.id
RETURNING rank, request, {", ".join(f"work.{name}" for name in Row.__struct_fields__)}
"""  # noqa: S608


class Claimed(NamedTuple):
    """What an engine has got, and what to tell the quota after the commit.

    `short` are teams whose money is held for what runs: asking again soon is of no use.
    """

    items: list[WorkItem]
    settlements: list[Settlement]
    short: set[int]
    refused: int


class LeaseOverError(Exception):
    """The engine's lease is over: it has to begin a new one first."""


def claim(
    engine: Engine, limit: int, credit: Credit, not_of: Collection[int], now: datetime
) -> Claimed:
    """Take at most so many, but none of the teams `not_of`.

    Raises `LeaseOverError`, what the database raises and what the Redis client raises; nothing is
    taken then.
    """
    with transaction.atomic():
        if not leases.is_held(engine.id):
            raise LeaseOverError
        taken = _take(engine, limit, not_of)
        requests: dict[str, GenerationRequest] = {}
        over: list[Ended] = []
        for row, data in taken:
            try:
                requests[str(row.id)] = unpack_request(data)
            except msgspec.DecodeError:
                over.append(_failed(row, ErrorCode.INTERNAL, "the stored request cannot be read"))
        known = [row for row, _ in taken if str(row.id) in requests]
        refused = credit.hold(known) if known else {}
        waiting = [row for row in known if row.id in refused and refused[row.id].wait]
        over += [
            _failed(row, why.code, why.message)
            for row in known
            if (why := refused.get(row.id)) and not why.wait
        ]
        running = [row for row in known if row.id not in refused]
        leases.return_rows([row.id for row in waiting], [None] * len(waiting), uncounted=True)
        settlements = keep_unserved(over, now)
        _begin([row for row in running if row.batch_id is None], now)
    items = [_item(row, requests[str(row.id)]) for row in running]
    return Claimed(items, settlements, {row.team_id for row in waiting}, len(over))


def _take(engine: Engine, limit: int, not_of: Collection[int]) -> list[tuple[Row, bytes]]:
    with connection.cursor() as cursor:
        cursor.execute(_CLAIM, [engine.model, list(not_of), limit, engine.id])
        taken = [
            (rank, rows.read(values), bytes(request))
            for rank, request, *values in cursor.fetchall()
        ]
    # The statement returns them in no order.
    taken.sort(key=lambda each: (each[0], each[1].deadline_at, each[1].id))
    return [(row, request) for _, row, request in taken]


def _begin(running: Sequence[Row], now: datetime) -> None:
    """Say of stored responses that they are in progress."""
    if running:
        waiting = StoredResponse.objects.filter(
            pk__in=[row.id for row in running], status=StoredResponse.Status.QUEUED
        )
        waiting.update(status=StoredResponse.Status.IN_PROGRESS, started_at=now)


def _item(row: Row, request: GenerationRequest) -> WorkItem:
    return WorkItem(
        request=request,
        attempt=row.attempts - 1,
        logged=row.logged,
        alone=policy.runs_alone(row.deaths),
    )


def _failed(row: Row, code: ErrorCode, message: str) -> Ended:
    return Ended(row=row, outcome=Outcome.FAILED, code=code, message=message)
