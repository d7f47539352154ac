"""A batch's life, from its rows to its end."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone
from kombu.exceptions import OperationalError
from pytest_django import Settings

from inference.transport.records import Ending
from jobs import batches, expiry
from jobs.batches import BatchError
from jobs.models import Batch, RequestRecord, StoredFile, Work
from jobs.work import enqueue, pending
from jobs.work.enqueue import NewWork
from tests.work import finished, new_batch, new_source, new_work, result, rows_of

pytestmark = pytest.mark.django_db(transaction=True)

Status = Batch.Status


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str]]:
    """Return what was sent: the task, its argument and its queue."""
    tasks: list[tuple[str, str, str]] = []

    def send(task: str, argument: str, *, queue: str = "default", expires_s: float = 60) -> None:
        tasks.append((task, argument, queue))

    for module in ("enqueue", "counts"):
        monkeypatch.setattr(f"jobs.work.{module}.send", send)
    monkeypatch.setattr("jobs.batches.send", send)
    return tasks


@pytest.fixture(autouse=True)
def _terms(settings: Settings) -> None:
    settings.WORK_TERMS = "tests.work.no_terms"


Sent = list[tuple[str, str, str]]


def failed_row(batch: Batch, line: int) -> NewWork:
    return new_work(
        batch_id=str(batch.pk),
        line=line,
        model="",
        request=b"",
        error_code="invalid_request",
        error_message="messages: Field required",
    )


def file_of(batch: Batch) -> StoredFile:
    return StoredFile.objects.create(
        id=uuid.uuid4(),
        team_id=batch.team_id,
        filename="out.jsonl",
        purpose=StoredFile.Purpose.BATCH_OUTPUT,
        size_bytes=1,
        digest=b"",
        name="out",
    )


def test_rows_wait_once_their_batch_has_begun(sent: Sent) -> None:
    batch = new_batch()
    begun = batches.begin(batch.pk, rows_of(batch, 3))
    assert (begun.status, begun.total, begun.failed, begun.model) == (Status.IN_PROGRESS, 3, 0, "m")
    assert begun.in_progress_at is not None
    assert [row.line for row in Work.objects.order_by("line")] == [1, 2, 3]
    assert sent == [("jobs.wake_engines", "m", "engine.m")]


def test_rows_that_cannot_be_read_have_failed_from_the_beginning(sent: Sent) -> None:
    batch = new_batch()
    rows = [*rows_of(batch, 1), failed_row(batch, 2)]
    begun = batches.begin(batch.pk, rows)
    assert (begun.status, begun.total, begun.failed) == (Status.IN_PROGRESS, 2, 1)
    failed = Work.objects.get(line=2)
    assert (failed.state, failed.outcome) == (Work.State.DONE, Work.Outcome.FAILED)
    assert failed.error_message == "messages: Field required"
    assert len(new_source().claim(5)) == 1


def test_a_batch_with_nothing_to_run_is_finalized_at_once(sent: Sent) -> None:
    batch, empty = new_batch(), new_batch()
    assert batches.begin(batch.pk, [failed_row(batch, 1)]).status == Status.FINALIZING
    assert batches.begin(empty.pk, []).status == Status.FINALIZING
    assert sent == [
        ("gateway.finalize_batch", str(batch.pk), "default"),
        ("gateway.finalize_batch", str(empty.pk), "default"),
    ]


def test_a_batch_that_is_begun_twice_has_its_rows_once(sent: Sent) -> None:
    batch = new_batch()
    batches.begin(batch.pk, rows_of(batch, 2))
    again = batches.begin(batch.pk, rows_of(batch, 5))
    assert again.total == 2
    assert Work.objects.count() == 2


def test_of_two_that_begin_a_batch_at_once_one_does(sent: Sent) -> None:
    batch = new_batch()

    def overtaken() -> Iterator[NewWork]:
        thread = threading.Thread(target=begin_elsewhere)
        thread.start()
        thread.join()
        yield from rows_of(batch, 3)

    def begin_elsewhere() -> None:
        batches.begin(batch.pk, rows_of(batch, 2))
        connection.close()

    assert batches.begin(batch.pk, overtaken()).total == 2
    assert Work.objects.count() == 2


def test_rows_that_cannot_be_made_leave_nothing(sent: Sent) -> None:
    batch = new_batch()

    def broken() -> Iterator[NewWork]:
        yield from rows_of(batch, 1)
        raise ValueError("line 2 is no JSON")

    with pytest.raises(ValueError, match="line 2"):
        batches.begin(batch.pk, broken())
    assert Work.objects.count() == 0
    batch.refresh_from_db()
    assert batch.status == Status.VALIDATING
    assert sent == []


def test_making_rows_may_ask_the_database(sent: Sent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enqueue, "_CHUNK_ROWS", 2)
    batch = new_batch()

    def asking() -> Iterator[NewWork]:
        for row in rows_of(batch, 5):
            Batch.objects.count()
            yield row

    assert batches.begin(batch.pk, asking()).total == 5


def test_what_is_wrong_with_the_input_ends_the_batch(sent: Sent) -> None:
    batch = new_batch()
    error = BatchError(code="invalid_json_line", message="line 3 is no JSON", line=3)
    failed = batches.fail(batch.pk, [error])
    assert (failed.status, failed.errors) == (
        Status.FAILED,
        [{"code": "invalid_json_line", "message": "line 3 is no JSON", "line": 3}],
    )
    assert failed.ended_at is not None
    assert batches.begin(batch.pk, rows_of(batch, 1)).status == Status.FAILED
    assert Work.objects.count() == 0
    later = new_batch()
    batches.begin(later.pk, rows_of(later, 1))
    assert batches.fail(later.pk, [error]).status == Status.IN_PROGRESS


def test_cancelling_ends_what_waits_and_lets_finish_what_runs(sent: Sent) -> None:
    batch = new_batch()
    batches.begin(batch.pk, rows_of(batch, 5))
    source = new_source()
    items = source.claim(2)
    cancelled = batches.cancel(batch.pk)
    assert (cancelled.status, cancelled.cancelled) == (Status.CANCELLING, 3)
    assert batches.cancel(batch.pk).cancelled == 3
    assert source.claim(5) == []
    assert source.renew([each.request.id for each in items]) == set()
    source.finish([finished(each) for each in items])
    batch.refresh_from_db()
    assert (batch.status, batch.completed) == (Status.FINALIZING, 2)
    assert sent[-1] == ("gateway.finalize_batch", str(batch.pk), "default")
    ended = batches.finish(batch.pk, output_file=file_of(batch).pk)
    assert (ended.status, ended.cancelled) == (Status.CANCELLED, 3)
    assert not RequestRecord.objects.filter(status="cancelled").exists()


def test_a_batch_that_is_cancelled_before_it_began_never_runs(sent: Sent) -> None:
    batch = new_batch()
    assert batches.cancel(batch.pk).status == Status.CANCELLED
    assert batches.begin(batch.pk, rows_of(batch, 2)).status == Status.CANCELLED
    assert Work.objects.count() == 0


def test_a_batch_cancelled_while_its_rows_are_made_never_runs(sent: Sent) -> None:
    batch = new_batch()

    def cancelled() -> Iterator[NewWork]:
        yield from rows_of(batch, 2)
        thread = threading.Thread(target=cancel_elsewhere)
        thread.start()
        thread.join()

    def cancel_elsewhere() -> None:
        batches.cancel(batch.pk)
        connection.close()

    assert batches.begin(batch.pk, cancelled()).status == Status.CANCELLED
    assert Work.objects.count() == 0


def test_a_batch_that_was_finished_stays_as_it_is(sent: Sent) -> None:
    batch = new_batch()
    batches.begin(batch.pk, rows_of(batch, 1))
    source = new_source()
    source.finish([finished(each) for each in source.claim(1)])
    output, other = file_of(batch), file_of(batch)
    done = batches.finish(batch.pk, output_file=output.pk)
    assert (done.status, done.output_file_id) == (Status.COMPLETED, output.pk)
    again = batches.finish(batch.pk, output_file=other.pk)
    assert again.output_file_id == output.pk
    assert batches.cancel(batch.pk).status == Status.COMPLETED


def test_a_batch_with_rows_that_were_too_late_has_expired(sent: Sent) -> None:
    batch = new_batch()
    batches.begin(batch.pk, rows_of(batch, 3))
    source = new_source()
    one, other = source.claim(2)
    source.finish([finished(one), result(other, ending=Ending.TIMEOUT)])
    assert pending.expire(batch.expires_at)[0] == 1
    ended = batches.finish(batch.pk)
    assert (ended.status, ended.completed, ended.expired) == (Status.EXPIRED, 1, 2)


def test_a_batch_is_worked_on_by_one_at_a_time() -> None:
    batch_id = uuid.uuid4()
    with batches.alone_on(batch_id) as alone:
        assert alone
        other = connection.copy()
        try:
            with other.cursor() as cursor:
                key = int.from_bytes(batch_id.bytes[8:], signed=True)
                cursor.execute("SELECT pg_try_advisory_lock(%s)", [key])
                assert cursor.fetchone() == (False,)
        finally:
            other.close()


def test_the_sweep_sends_again_what_was_lost(sent: Sent) -> None:
    now = timezone.now()
    long_ago = now - timedelta(minutes=5)
    new_batch()
    stuck = new_batch(created_at=long_ago)
    unwritten = new_batch()
    Batch.objects.filter(pk=unwritten.pk).update(status=Status.FINALIZING, finalizing_at=long_ago)
    batches.sweep(now)
    assert sent == [
        ("gateway.validate_batch", str(stuck.pk), "default"),
        ("gateway.finalize_batch", str(unwritten.pk), "default"),
    ]


def test_the_sweep_goes_on_with_a_cancellation_that_was_cut_short(sent: Sent) -> None:
    batch = new_batch()
    batches.begin(batch.pk, rows_of(batch, 2))
    Batch.objects.filter(pk=batch.pk).update(status=Status.CANCELLING, cancelling_at=timezone.now())
    batches.sweep(timezone.now())
    batch.refresh_from_db()
    assert (batch.status, batch.cancelled) == (Status.FINALIZING, 2)


def test_a_batch_that_is_never_validated_expires(sent: Sent) -> None:
    batch = new_batch()
    batches.sweep(batch.expires_at)
    batch.refresh_from_db()
    assert batch.status == Status.EXPIRED
    assert sent == []


def test_results_are_gone_a_month_after_the_end_and_the_batch_is_not(sent: Sent) -> None:
    batch, young = new_batch(), new_batch()
    for each in (batch, young):
        batches.begin(each.pk, rows_of(each, 3))
        batches.cancel(each.pk)
        batches.finish(each.pk)
    now = timezone.now()
    Batch.objects.filter(pk=batch.pk).update(ended_at=now - expiry.RESULTS_KEPT)
    assert sum(expiry.prune_batches(now)) == 3
    assert sum(expiry.prune_batches(now)) == 0
    batch.refresh_from_db()
    assert batch.archived_at == now
    assert {row.batch_id for row in Work.objects.all()} == {young.pk}


def test_nobody_to_send_to_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object, **__: object) -> None:
        raise OperationalError("no broker")

    monkeypatch.setattr("jobs.celery.app.send_task", away)
    batch = new_batch()
    assert batches.begin(batch.pk, rows_of(batch, 1)).status == Status.IN_PROGRESS
