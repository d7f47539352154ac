"""Takes the work whose turn it is for an engine, as long as its team can pay for it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import msgspec
from django.db import transaction

from inference.engine.work import WorkItem
from inference.errors import ErrorCode
from inference.request import GenerationRequest
from jobs.models import StoredResponse
from jobs.packing import unpack_request
from jobs.recorder.settling import Settlement
from jobs.work import leases, policy
from jobs.work.credit import Credit
from jobs.work.ending import Ended, Outcome, keep_unserved
from jobs.work.queue import Ask, Queue, Taken
from jobs.work.rows import Row


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


def claim(queue: Queue, ask: Ask, credit: Credit, now: datetime) -> Claimed:
    """Take what is asked for.

    Raises `LeaseOverError`, what the database raises and what the Redis client raises; nothing is
    taken then.
    """
    with transaction.atomic():
        if not leases.is_held(queue.engine.id):
            raise LeaseOverError
        taken = queue.take(ask)
        requests: dict[UUID, GenerationRequest] = {}
        over: list[Ended] = []
        for row, data, *_ in taken:
            try:
                requests[row.id] = unpack_request(data)
            except msgspec.DecodeError:
                over.append(_failed(row, ErrorCode.INTERNAL, "the stored request cannot be read"))
        known = [each.row for each in taken if each.row.id in requests]
        refused = credit.hold(known) if known else {}
        waiting = [row for row in known if row.id in refused and refused[row.id].wait]
        over += [
            _failed(row, why.code, why.message)
            for row in known
            if (why := refused.get(row.id)) and not why.wait
        ]
        running = [each for each in taken if each.row.id in requests and each.row.id not in refused]
        leases.return_rows(
            [row.id for row in waiting], [None] * len(waiting), leases.Back.UNTOUCHED
        )
        settlements = keep_unserved(over, now)
        _begin([each.row for each in running if each.row.batch_id is None], now)
    items = [_item(each, requests[each.row.id]) for each in running]
    return Claimed(items, settlements, {row.team_id for row in waiting}, len(over))


def _begin(running: Sequence[Row], now: datetime) -> None:
    """Say of stored responses that they are in progress."""
    if running:
        waiting = StoredResponse.objects.filter(
            pk__in=[row.id for row in running], status=StoredResponse.Status.QUEUED
        )
        waiting.update(status=StoredResponse.Status.IN_PROGRESS, started_at=now)


def _item(taken: Taken, request: GenerationRequest) -> WorkItem:
    row = taken.row
    return WorkItem(
        request=request,
        attempt=row.attempts - 1,
        logged=row.logged,
        alone=policy.runs_alone(row.deaths),
        preemptions=row.preemptions,
        urgent=taken.is_urgent,
    )


def _failed(row: Row, code: ErrorCode, message: str) -> Ended:
    return Ended(row=row, outcome=Outcome.FAILED, code=code, message=message)
