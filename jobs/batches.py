"""A batch's life: it begins, its rows end one by one, its results are written, it is over.

A batch is VALIDATING while its input is read, IN_PROGRESS while rows wait or run (CANCELLING, if
those that wait are not to be run any more), FINALIZING once all have ended, until its files are
written. Every change is made under the lock of its row and is harmless when made again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from uuid import UUID

import msgspec
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from jobs.models import Batch, Work
from jobs.work import metric_counts, pending
from jobs.work.counts import FINALIZE_TASK, finalize_if_over
from jobs.work.enqueue import NewWork, insert, send, wake_on_commit

VALIDATE_TASK = "gateway.validate_batch"
# How long a task may have been under way before it is taken for lost. It is locked: see `alone_on`.
_VALIDATED_WITHIN = timedelta(seconds=60)
_FINALIZED_WITHIN = timedelta(seconds=30)
_AT_ONCE = 100

Status = Batch.Status


class BatchError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that is wrong with a batch's input, in the words of OpenAI's `errors.data[]`."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class _HasBegunError(Exception):
    """Somebody else has begun or ended the batch meanwhile."""


class _Count(msgspec.Struct):
    rows: int = 0
    failed: int = 0
    models: set[str] = msgspec.field(default_factory=set)


def begin(batch_id: UUID, rows: Iterable[NewWork]) -> Batch:
    """Insert a batch's rows, all or nothing, and let them run; return the batch as it is then.

    Rows that have an error have failed already; were it all of them, or were there none, the batch
    is passed on to be finalized. The iterable is taken in chunks and may ask the database. What it
    raises comes out of here, and nothing has changed. If the batch is not VALIDATING any more
    (begun by another, cancelled), nothing changes either.

    Commits by itself unless the caller is in a transaction: one that makes the `Batch` too, say.
    """
    try:
        with transaction.atomic():
            if Batch.objects.get(pk=batch_id).status != Status.VALIDATING:
                raise _HasBegunError
            _begin(batch_id, rows)
    except _HasBegunError:
        pass
    except IntegrityError:
        # Two who began it at once had the same lines; the one that came first has won.
        if Batch.objects.get(pk=batch_id).status == Status.VALIDATING:
            raise
    return Batch.objects.get(pk=batch_id)


def _begin(batch_id: UUID, rows: Iterable[NewWork]) -> None:
    counted = _Count()
    insert(_watch(rows, counted))
    batch = _lock(batch_id)
    if batch.status != Status.VALIDATING:
        raise _HasBegunError
    now = timezone.now()
    batch.status, batch.in_progress_at = Status.IN_PROGRESS, now
    batch.total, batch.failed = counted.rows, counted.failed
    if len(counted.models) == 1:
        (batch.model,) = counted.models
    batch.save(update_fields=["status", "in_progress_at", "total", "failed", "model"])
    finalize_if_over(batch_id, now)
    metric_counts.count_ended([("", Work.Outcome.FAILED.value)] * counted.failed)
    wake_on_commit(counted.models)


def _watch(rows: Iterable[NewWork], counted: _Count) -> Iterator[NewWork]:
    for row in rows:
        counted.rows += 1
        if row.error_code:
            counted.failed += 1
        else:
            counted.models.add(row.model)
        yield row


def fail(batch_id: UUID, errors: Sequence[BatchError]) -> Batch:
    """End a batch whose input cannot be used; return the batch as it is then.

    If it is not VALIDATING any more, nothing changes.
    """
    with transaction.atomic():
        batch = _lock(batch_id)
        if batch.status == Status.VALIDATING:
            batch.status, batch.ended_at = Status.FAILED, timezone.now()
            batch.errors = msgspec.to_builtins(list(errors))
            batch.save(update_fields=["status", "ended_at", "errors"])
    return batch


def cancel(batch_id: UUID) -> Batch:
    """Run no more of a batch's rows; those that are running finish. Return the batch as it is then.

    One that is still VALIDATING is over at once; for one that has nothing left to run it is too
    late, and nothing changes.
    """
    with transaction.atomic():
        batch = _lock(batch_id)
        now = timezone.now()
        if batch.status == Status.VALIDATING:
            batch.status, batch.cancelling_at, batch.ended_at = Status.CANCELLED, now, now
            batch.save(update_fields=["status", "cancelling_at", "ended_at"])
        elif batch.status == Status.IN_PROGRESS:
            batch.status, batch.cancelling_at = Status.CANCELLING, now
            batch.save(update_fields=["status", "cancelling_at"])
    # In a transaction of its own: rows are locked before their batch. Should it never come to it,
    # the sweep does it.
    if batch.status == Status.CANCELLING:
        pending.cancel_batch(batch_id, timezone.now())
        batch.refresh_from_db()
    return batch


def finish(
    batch_id: UUID, *, output_file: UUID | None = None, error_file: UUID | None = None
) -> Batch:
    """End a batch whose files are written; return it as it is then.

    If it is not FINALIZING any more, nothing changes: whoever wrote the files sees from the batch
    whether they are its own.
    """
    with transaction.atomic():
        batch = _lock(batch_id)
        if batch.status == Status.FINALIZING:
            batch.status, batch.ended_at = _final(batch), timezone.now()
            batch.output_file_id, batch.error_file_id = output_file, error_file
            batch.save(update_fields=["status", "ended_at", "output_file", "error_file"])
    return batch


def _final(batch: Batch) -> Status:
    if batch.cancelling_at is not None:
        return Status.CANCELLED
    return Status.EXPIRED if batch.expired else Status.COMPLETED


@contextmanager
def alone_on(batch_id: UUID) -> Iterator[bool]:
    """Whether nobody else works on the batch; if so nobody begins to until the end of the block.

    For the tasks that validate and finalize: they may be sent again while they run. The lock is
    the database session's, so that it goes with a process that is killed.
    """
    key = int.from_bytes(batch_id.bytes[8:], signed=True)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [key])
        (alone,) = cursor.fetchone()
    try:
        yield alone
    finally:
        if alone:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(%s)", [key])


def sweep(now: datetime) -> None:
    """Do again what somebody was killed before: it is sent, or said, or cancelled again."""
    still = Batch.objects.order_by("created_at")
    for batch in still.filter(status=Status.VALIDATING)[:_AT_ONCE]:
        if batch.expires_at <= now:
            _expire(batch.pk, now)
        elif batch.created_at <= now - _VALIDATED_WITHIN:
            send(VALIDATE_TASK, str(batch.pk))
    for batch in still.filter(status=Status.CANCELLING)[:_AT_ONCE]:
        pending.cancel_batch(batch.pk, now)
    lost = still.filter(status=Status.FINALIZING, finalizing_at__lte=now - _FINALIZED_WITHIN)
    for batch in lost[:_AT_ONCE]:
        send(FINALIZE_TASK, str(batch.pk))


def _expire(batch_id: UUID, now: datetime) -> None:
    with transaction.atomic():
        batch = _lock(batch_id)
        if batch.status == Status.VALIDATING:
            batch.status, batch.ended_at = Status.EXPIRED, now
            batch.save(update_fields=["status", "ended_at"])


def _lock(batch_id: UUID) -> Batch:
    # Rows that name it may be inserted all the same. Raises `Batch.DoesNotExist`.
    return Batch.objects.select_for_update(no_key=True).get(pk=batch_id)
