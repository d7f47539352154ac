"""Stored responses reach an end, once, and with them the work that makes them."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from pytest_django import Settings

from inference.errors import ErrorCode
from inference.events import Failed, Finished, FinishReason, Started, TextDelta
from inference.request import Lane, TextPart
from inference.transport.records import Ending
from jobs import batches, expiry, responses
from jobs.models import LedgerEntry, RequestRecord, ResponseFeed, StoredResponse, Work
from jobs.packing import unpack, unpack_answer, unpack_events
from jobs.responses import NewResponse
from jobs.work import leases, pending
from jobs.work.cancel import cancel
from tests.work import KEY, USAGE, finished, new_batch, new_source, new_work, result, rows_of

pytestmark = pytest.mark.django_db(transaction=True)

Status = StoredResponse.Status


@pytest.fixture(autouse=True)
def _terms(settings: Settings) -> None:
    settings.WORK_TERMS = "tests.work.no_terms"


def created(*, background: bool = True, logged: bool = False, **fields: Any) -> str:
    """Store a response, with its work if it is in the background; return its id."""
    now = timezone.now()
    response_id = str(uuid.uuid4())
    new = NewResponse(
        id=response_id,
        team_id=1,
        key_id=KEY,
        model="m",
        lane=Lane.BACKGROUND,
        created_at=now,
        deadline_at=now + timedelta(hours=1),
        expires_at=now + timedelta(days=30),
        background=background,
        streamed=logged,
        body=b'{"input":"Hello"}',
        **fields,
    )
    work = new_work(
        id=response_id,
        dialect="responses",
        lane=Lane.BACKGROUND,
        created_at=now,
        deadline_at=new.deadline_at,
        logged=logged,
        origin={"team_name": "blue", "trace_id": "ab"},
    )
    responses.create(new, work if background else None)
    return response_id


def stored(response_id: str) -> StoredResponse:
    return StoredResponse.objects.get(pk=response_id)


def test_a_background_response_is_answered_by_an_engine() -> None:
    response_id = created()
    assert stored(response_id).status == Status.QUEUED
    source = new_source()
    (item,) = source.claim(1)
    running = stored(response_id)
    assert running.status == Status.IN_PROGRESS
    assert running.started_at is not None
    source.finish([finished(item, "Paris.")])
    done = stored(response_id)
    assert done.status == Status.COMPLETED
    assert unpack_answer(bytes(done.answer)).parts == (TextPart("Paris."),)
    assert unpack(bytes(done.body)) == b'{"input":"Hello"}'
    assert (done.cost_micros, done.number) == (0, 1)
    assert done.ended_at is not None
    assert not Work.objects.exists()
    told = RequestRecord.objects.get(pk=response_id)
    assert (told.type, told.team_name, told.trace_id) == ("standalone", "blue", "ab")
    assert LedgerEntry.objects.get().request_id == told.pk


@pytest.mark.parametrize("reason", [FinishReason.LENGTH, FinishReason.REFUSAL])
def test_an_answer_that_was_cut_short_is_incomplete(reason: FinishReason) -> None:
    response_id = created()
    source = new_source()
    (item,) = source.claim(1)
    source.finish([finished(item, reason=reason)])
    assert stored(response_id).status == Status.INCOMPLETE


def test_a_response_that_fails_says_why() -> None:
    response_id = created()
    source = new_source()
    (item,) = source.claim(1)
    source.finish([result(item, ending=Ending.FAILED, detail="prompt_too_long", message="long")])
    failed = stored(response_id)
    assert (failed.status, failed.error_code) == (Status.FAILED, "prompt_too_long")
    assert failed.error_message == "long"


def test_the_events_of_a_streamed_one_are_kept_with_its_end() -> None:
    response_id = created(logged=True)
    source = new_source()
    (item,) = source.claim(1)
    assert item.logged
    said = (Started(prompt_tokens=100), TextDelta("Hi"))
    source.finish([finished(item, events=said)])
    end = Finished(reason=FinishReason.END, usage=USAGE)
    assert unpack_events(bytes(stored(response_id).events)) == (*said, end)


def test_the_last_event_is_the_one_that_its_log_has() -> None:
    response_id = created(logged=True)
    source = new_source()
    (item,) = source.claim(1)
    said = (Started(prompt_tokens=1), Failed(code=ErrorCode.TIMEOUT, message="slow"))
    source.finish([result(item, ending=Ending.TIMEOUT, events=said)])
    assert unpack_events(bytes(stored(response_id).events)) == said
    assert stored(response_id).status == Status.FAILED


def test_a_response_that_waits_is_cancelled_at_once() -> None:
    response_id = created(logged=True)
    cancelled = responses.cancel(response_id, 1)
    assert cancelled is not None
    assert (cancelled.status, cancelled.number) == (Status.CANCELLED, 1)
    assert unpack_events(bytes(cancelled.events)) == (Failed(code=ErrorCode.CANCELLED, message=""),)
    assert not Work.objects.exists()
    assert RequestRecord.objects.get(pk=response_id).status == "cancelled"
    assert not LedgerEntry.objects.exists()
    again = responses.cancel(response_id, 1)
    assert again is not None
    assert (again.status, again.number) == (Status.CANCELLED, 1)


@pytest.mark.parametrize("in_time", [True, False], ids=["broken off", "finished meanwhile"])
def test_a_response_that_runs_is_cancelled_and_what_it_used_is_billed(in_time: bool) -> None:
    response_id = created()
    source = new_source()
    (item,) = source.claim(1)
    cancelled = responses.cancel(response_id, 1)
    assert cancelled is not None
    assert cancelled.status == Status.CANCELLED
    assert source.renew([item.request.id]) == {item.request.id}
    ending = result(item, ending=Ending.CANCELLED) if in_time else finished(item)
    source.finish([ending])
    done = stored(response_id)
    assert (done.status, done.number, bytes(done.answer)) == (Status.CANCELLED, 1, b"")
    assert done.cost_micros == 0
    assert RequestRecord.objects.get(pk=response_id).ending == "cancelled"
    assert LedgerEntry.objects.get().description == ""
    assert ResponseFeed.objects.get(pk=1).last == 1


def test_a_cancelled_response_whose_engine_died_does_not_run_again() -> None:
    response_id = created()
    source = new_source()
    source.claim(1)
    responses.cancel(response_id, 1)
    source.close()
    assert new_source().claim(1) == []
    assert not Work.objects.exists()
    assert stored(response_id).status == Status.CANCELLED


def test_nobody_cancels_or_deletes_what_is_another_teams() -> None:
    response_id = created()
    assert responses.cancel(response_id, 2) is None
    assert not responses.delete(response_id, 2)
    assert stored(response_id).status == Status.QUEUED


def test_only_what_has_ended_can_be_deleted() -> None:
    response_id = created()
    assert not responses.delete(response_id, 1)
    responses.cancel(response_id, 1)
    assert responses.delete(response_id, 1)
    assert not responses.delete(response_id, 1)


def test_a_response_that_its_caller_waits_for_is_ended_by_its_gateway() -> None:
    response_id = created(background=False)
    assert stored(response_id).status == Status.IN_PROGRESS
    end = responses.failed(ErrorCode.CANCELLED, "the client left")
    now = timezone.now()
    assert responses.finish(response_id, end, now)
    assert not responses.finish(response_id, responses.failed(ErrorCode.INTERNAL, "no"), now)
    done = stored(response_id)
    assert (done.status, done.number, done.ended_at) == (Status.CANCELLED, None, now)
    assert responses.cancel(response_id, 1) is not None


def test_a_response_whose_gateway_died_fails_after_its_deadline() -> None:
    response_id, waiting = created(background=False), created()
    deadline = stored(response_id).deadline_at
    assert responses.sweep(deadline) == 0
    assert responses.sweep(deadline + timedelta(seconds=31)) == 1
    assert stored(response_id).status == Status.FAILED
    assert stored(waiting).status == Status.QUEUED


def test_a_background_response_that_no_engine_takes_fails_at_its_deadline() -> None:
    response_id = created()
    assert pending.expire(stored(response_id).deadline_at)[0] == 1
    failed = stored(response_id)
    assert (failed.status, failed.error_code) == (Status.FAILED, "expired")
    assert not Work.objects.exists()


def test_the_feed_numbers_responses_as_they_end() -> None:
    ids = [created() for _ in range(3)]
    source = new_source()
    items = {each.request.id: each for each in source.claim(3)}
    for response_id in reversed(ids):
        source.finish([finished(items[response_id])])
    assert [stored(each).number for each in ids] == [3, 2, 1]


def test_a_response_is_forgotten_when_its_time_is_over() -> None:
    ended, still_open = created(), created()
    responses.cancel(ended, 1)
    later = timezone.now() + timedelta(days=31)
    assert sum(expiry.prune_responses(timezone.now())) == 0
    assert sum(expiry.prune_responses(later)) == 1
    assert stored(still_open).status == Status.QUEUED


def test_a_row_of_a_batch_can_be_cancelled_by_itself() -> None:
    batch = new_batch()
    batches.begin(batch.pk, rows_of(batch, 2))
    first = Work.objects.get(line=1)
    assert cancel(str(first.pk))
    assert not cancel(str(first.pk))
    assert not cancel(str(uuid.uuid4()))
    batch.refresh_from_db()
    assert (batch.cancelled, batch.status) == (1, "in_progress")
    source = new_source()
    (item,) = source.claim(2)
    assert cancel(item.request.id)
    leases.close(source._engine.id, timezone.now())
    batch.refresh_from_db()
    assert (batch.cancelled, batch.status) == (2, "finalizing")
