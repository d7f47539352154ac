"""Counts what rows came to into their batches, and ends the batches that have no row left."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import msgspec
from django.db import transaction
from django.db.models import F

from jobs.models import Batch, Work
from jobs.work.enqueue import send

FINALIZE_TASK = "gateway.finalize_batch"
_COUNTED = ("completed", "failed", "cancelled", "expired")
_RUNNING = (Batch.Status.IN_PROGRESS, Batch.Status.CANCELLING)


class Used(NamedTuple):
    """What a row used: fields of `jobs.models.RequestRecord`."""

    input_tokens: int
    cached_tokens: int
    output_tokens: int
    thinking_tokens: int
    cost_micros: int | None


class Sums(msgspec.Struct, kw_only=True):
    """What some rows of one batch add to its counts and sums: fields of `jobs.models.Batch`."""

    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    expired: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    thinking_tokens: int = 0
    cost_micros: int = 0

    def add(self, outcome: Work.Outcome, used: Used | None = None) -> None:
        """Count a row that ended this way; what it used, as the trail says, if it is complete."""
        setattr(self, outcome.value, getattr(self, outcome.value) + 1)
        if used is not None and outcome is Work.Outcome.COMPLETED:
            self.input_tokens += used.input_tokens
            self.cached_tokens += used.cached_tokens
            self.output_tokens += used.output_tokens
            self.thinking_tokens += used.thinking_tokens
            self.cost_micros += used.cost_micros or 0


def count(sums: Mapping[UUID, Sums], now: datetime) -> None:
    """Add to batches what their rows came to, in the transaction that ends the rows.

    Batches are taken in one order everywhere, after rows and accounts, so that nobody waits in a
    ring.
    """
    for batch_id in sorted(sums):
        added = msgspec.structs.asdict(sums[batch_id])
        changes = {name: F(name) + value for name, value in added.items() if value}
        if changes:
            Batch.objects.filter(pk=batch_id).update(**changes)
        finalize_if_over(batch_id, now)


def finalize_if_over(batch_id: UUID, now: datetime) -> None:
    """Pass a batch on to be finalized if all of its rows have ended."""
    ended = sum((F(name) for name in _COUNTED[1:]), F(_COUNTED[0]))
    over = Batch.objects.filter(pk=batch_id, status__in=_RUNNING, total=ended)
    if over.update(status=Batch.Status.FINALIZING, finalizing_at=now):
        transaction.on_commit(lambda: send(FINALIZE_TASK, str(batch_id)))
