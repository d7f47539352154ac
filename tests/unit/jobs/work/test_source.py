"""What an engine takes, ends and gives back."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError
from django.utils import timezone
from pytest_django import Settings

from inference.errors import ErrorCode
from inference.events import Usage
from inference.request import Lane
from inference.transport.records import Ending
from jobs import batches
from jobs.models import Batch, LedgerEntry, Price, RequestRecord, Work, Worker
from jobs.packing import unpack_answer
from jobs.work import leases, pending
from jobs.work.cancel import cancel
from jobs.work.enqueue import insert
from jobs.work.policy import MAX_DEATHS
from jobs.work.source import DatabaseSource
from tests.work import USAGE, finished, new_batch, new_source, new_work, result, rows_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _terms(settings: Settings) -> None:
    """Let every team run what it likes; `test_credit` has teams that may not."""
    settings.WORK_TERMS = "tests.work.no_terms"


def begun(count: int, **fields: Any) -> Batch:
    batch = new_batch()
    return batches.begin(batch.pk, rows_of(batch, count, **fields))


def row(request_id: str) -> Work:
    return Work.objects.get(pk=request_id)


def die(source: DatabaseSource) -> None:
    """Let an engine's lease be over."""
    past = timezone.now() - timedelta(seconds=1)
    Worker.objects.filter(pk=source._engine.id).update(expires_at=past)
    leases.reap(timezone.now())


def test_it_takes_no_more_than_it_is_told_and_nothing_twice() -> None:
    begun(5)
    one, other = new_source(), new_source()
    first, second = one.claim(3), other.claim(10)
    assert len(first) == 3
    assert len(second) == 2
    assert not {each.request.id for each in first} & {each.request.id for each in second}
    assert one.claim(10) == []


def test_it_takes_only_work_of_its_model() -> None:
    begun(1, model="other")
    assert new_source("m").claim(10) == []
    assert len(new_source("other").claim(10)) == 1


def test_urgent_work_comes_before_background_responses_and_those_before_batches() -> None:
    now = timezone.now()
    batch = new_work(lane=Lane.BATCH)
    background = new_work(lane=Lane.BACKGROUND)
    urgent = new_work(lane=Lane.BATCH, deadline_at=now + timedelta(seconds=60))
    urgent_at = now + timedelta(seconds=31)
    later = new_work(lane=Lane.BATCH, deadline_at=now + timedelta(hours=48))
    insert([later, batch, background, urgent])
    assert pending.rise(now) == 0
    assert pending.rise(urgent_at) == 1
    assert pending.rise(urgent_at) == 0
    source = new_source()
    taken = [source.claim(1)[0].request.id for _ in range(4)]
    assert taken == [urgent.id, background.id, batch.id, later.id]


@pytest.mark.parametrize(
    ("window", "before_end"),
    [
        (timedelta(hours=24), timedelta(hours=1)),
        (timedelta(hours=8), timedelta(minutes=48)),
        (timedelta(hours=1), timedelta(minutes=10)),
        (timedelta(minutes=10), timedelta(minutes=5)),
    ],
)
def test_work_is_urgent_in_the_last_tenth_of_its_window_between_ten_minutes_and_an_hour(
    window: timedelta, before_end: timedelta
) -> None:
    now = timezone.now()
    insert([new_work(created_at=now, deadline_at=now + window)])
    urgent_at = now + window - before_end
    assert pending.rise(urgent_at - timedelta(seconds=1)) == 0
    assert pending.rise(urgent_at) == 1


def test_a_request_comes_out_as_it_was_put_in() -> None:
    work = new_work()
    insert([work])
    (item,) = new_source().claim(1)
    assert item.request.id == work.id
    assert item.request.messages[0].parts[0].text == "Hello"  # type: ignore[union-attr]
    assert (item.attempt, item.logged, item.alone) == (0, False, False)


def test_what_ends_is_kept_billed_and_counted_once() -> None:
    Price.objects.create(
        model="m",
        effective_from=timezone.now() - timedelta(days=1),
        input_micros_per_mtok=1_000_000,
        cached_input_micros_per_mtok=1_000_000,
        cache_write_micros_per_mtok=1_000_000,
        output_micros_per_mtok=2_000_000,
    )
    batch = begun(2)
    source = new_source()
    items = source.claim(2)
    source.finish([finished(items[0], "One"), finished(items[1], "Two")])
    # The first answer of the database may be lost.
    source.finish([finished(items[0], "Other"), finished(items[1])])
    batch.refresh_from_db()
    assert (batch.completed, batch.failed, batch.status) == (2, 0, Batch.Status.FINALIZING)
    assert (batch.input_tokens, batch.cached_tokens) == (200, 40)
    assert (batch.output_tokens, batch.thinking_tokens) == (60, 10)
    # 100 + 2 * 30, at half the price.
    assert batch.cost_micros == 2 * 80
    done = row(items[0].request.id)
    assert (done.state, done.outcome) == (Work.State.DONE, Work.Outcome.COMPLETED)
    assert bytes(done.request) == b""
    assert unpack_answer(bytes(done.answer)).text == "One"
    entries = LedgerEntry.objects.filter(request_id__in=[each.request.id for each in items])
    assert sorted(entries.values_list("amount_micros", flat=True)) == [-80, -80]


def test_the_trail_tells_who_asked_for_a_row() -> None:
    batch = begun(1)
    source = new_source()
    (item,) = source.claim(1)
    source.finish([finished(item)])
    told = RequestRecord.objects.get(pk=item.request.id)
    assert (told.type, told.batch_id, told.custom_id) == ("batch", batch.pk, "row-1")
    assert (told.team_name, told.key_name, told.client) == ("blue", "laptop", "openai/2.0")
    assert (told.status, told.ending, told.detail) == ("completed", "finished", "end")
    assert (told.lane, told.dialect, told.ignored_fields) == ("batch", "chat", ["user"])
    assert told.engine_host == "host"
    assert told.settled_at is not None
    assert told.created_at == batch.created_at


def test_a_row_that_is_at_fault_itself_fails_and_costs_nothing() -> None:
    batch = begun(1)
    source = new_source()
    (item,) = source.claim(1)
    too_long = ErrorCode.PROMPT_TOO_LONG.value
    source.finish([result(item, ending=Ending.FAILED, detail=too_long, message="too\0 long")])
    failed = row(item.request.id)
    assert (failed.outcome, failed.error_code) == (Work.Outcome.FAILED, too_long)
    assert failed.error_message == "too long"
    batch.refresh_from_db()
    assert (batch.failed, batch.cost_micros, batch.input_tokens) == (1, 0, 0)
    assert LedgerEntry.objects.get().amount_micros == 0


def test_a_failure_that_may_pass_is_tried_again_but_not_for_ever() -> None:
    begun(1)
    source = new_source()
    for attempt in range(3):
        Work.objects.update(not_before=None)
        (item,) = source.claim(1)
        assert item.attempt == attempt
        source.finish([result(item, ending=Ending.FAILED, detail="internal", message="oops")])
        if attempt < 2:
            assert row(item.request.id).state == Work.State.PENDING
            assert source.claim(1) == []
    assert row(item.request.id).outcome == Work.Outcome.FAILED


def test_what_is_late_is_expired_and_not_billed() -> None:
    batch = begun(1)
    source = new_source()
    (item,) = source.claim(1)
    source.finish([result(item, ending=Ending.TIMEOUT)])
    assert row(item.request.id).outcome == Work.Outcome.EXPIRED
    batch.refresh_from_db()
    assert (batch.expired, batch.cost_micros) == (1, 0)
    assert LedgerEntry.objects.get().description == "waived: failed"


def test_what_is_given_back_was_never_attempted() -> None:
    begun(2)
    source = new_source()
    items = source.claim(2)
    source.give_back([items[0].request.id])
    (again,) = source.claim(2)
    assert again.request.id == items[0].request.id
    assert again.attempt == 0
    assert row(again.request.id).deaths == 0
    assert again.preemptions == 0


def test_what_gives_up_its_place_was_never_attempted_and_says_how_often_it_did() -> None:
    begun(3)
    source = new_source()
    first, second = source.claim(2)
    assert (first.preemptions, first.urgent) == (0, False)
    for count in (1, 2):
        source.give_back([first.request.id, second.request.id], preempted=True)
        # They are before what has not begun yet.
        again = source.claim(2)
        assert [each.request for each in again] == [first.request, second.request]
        assert [(each.attempt, each.preemptions) for each in again] == [(0, count)] * 2
    assert row(first.request.id).deaths == 0
    source.finish([finished(each) for each in again])
    assert row(first.request.id).outcome == Work.Outcome.COMPLETED


def test_what_was_cancelled_ends_as_it_gives_up_its_place() -> None:
    begun(1)
    source = new_source()
    (item,) = source.claim(1)
    assert cancel(item.request.id)
    source.give_back([item.request.id], preempted=True)
    assert row(item.request.id).outcome == Work.Outcome.CANCELLED


def test_all_that_an_engine_has_goes_back_as_it_closes() -> None:
    begun(2)
    source, other = new_source(), new_source()
    source.claim(2)
    source.close()
    items = other.claim(2)
    assert [each.attempt for each in items] == [0, 0]
    assert not Worker.objects.filter(pk=source._engine.id).exists()


def test_what_a_dead_engine_had_goes_to_another_which_has_the_only_word() -> None:
    batch = begun(1)
    dead, other = new_source(), new_source()
    (item,) = dead.claim(1)
    die(dead)
    assert other.claim(1) == []
    Work.objects.update(not_before=None)
    (again,) = other.claim(1)
    assert (again.attempt, row(again.request.id).deaths) == (1, 1)
    dead.finish([finished(item, "too late")])
    other.finish([finished(again, "Right")])
    assert unpack_answer(bytes(row(again.request.id).answer)).text == "Right"
    batch.refresh_from_db()
    assert batch.completed == 1
    assert LedgerEntry.objects.count() == 1


def test_an_engine_that_was_taken_for_dead_begins_anew() -> None:
    begun(2)
    source = new_source()
    (item,) = source.claim(1)
    assert source.renew([item.request.id]) == set()
    die(source)
    assert source.renew([item.request.id]) == {item.request.id}
    assert source.renew([]) == set()
    die(source)
    assert len(source.claim(2)) == 1


def test_a_live_engine_puts_back_what_a_dead_one_had() -> None:
    begun(1)
    dead, other = new_source(), new_source()
    (item,) = dead.claim(1)
    past = timezone.now() - timedelta(seconds=1)
    Worker.objects.filter(pk=dead._engine.id).update(expires_at=past)
    other.renew([])
    assert row(item.request.id).state == Work.State.PENDING


def test_a_row_that_is_there_at_every_death_runs_alone_and_fails_then() -> None:
    batch = begun(2)
    for death in range(MAX_DEATHS):
        source = new_source()
        Work.objects.update(not_before=None)
        poison = next(each for each in source.claim(2) if each.request.id == first_id(batch))
        assert poison.alone == (death == MAX_DEATHS - 1)
        healthy = Work.objects.exclude(pk=poison.request.id).filter(state="running")
        source.give_back([str(each.pk) for each in healthy])
        die(source)
    failed = row(first_id(batch))
    assert (failed.outcome, failed.error_code) == (Work.Outcome.FAILED, "engine_lost")
    assert "in 4 engines when they died" in failed.error_message
    assert RequestRecord.objects.get(pk=failed.pk).status == "failed"
    assert not LedgerEntry.objects.exists()
    source = new_source()
    (healthy_item,) = source.claim(2)
    source.finish([finished(healthy_item)])
    batch.refresh_from_db()
    assert (batch.completed, batch.failed, batch.status) == (1, 1, Batch.Status.FINALIZING)


def first_id(batch: Batch) -> str:
    return str(Work.objects.get(batch=batch, line=1).pk)


def test_an_engine_that_dies_with_a_word_counts_as_a_death_too() -> None:
    begun(1)
    source = new_source()
    (item,) = source.claim(1)
    source.finish([result(item, ending=Ending.ENGINE_LOST)])
    back = row(item.request.id)
    assert (back.state, back.deaths, back.attempts) == (Work.State.PENDING, 1, 1)
    assert not RequestRecord.objects.exists()


def test_a_result_that_cannot_be_kept_fails_and_the_others_are_kept() -> None:
    batch = begun(3)
    source = new_source()
    items = source.claim(3)
    impossible = Usage(prompt_tokens=1, cached_tokens=2, output_tokens=1)
    source.finish(
        [finished(items[0]), finished(items[1], usage=impossible), finished(items[2], usage=USAGE)]
    )
    batch.refresh_from_db()
    assert (batch.completed, batch.failed) == (2, 1)
    assert row(items[1].request.id).error_code == "internal"


def test_a_request_that_cannot_be_read_fails_and_the_others_run() -> None:
    batch = begun(2)
    broken = first_id(batch)
    Work.objects.filter(pk=broken).update(request=b"\xc1")
    assert len(new_source().claim(2)) == 1
    assert row(broken).outcome == Work.Outcome.FAILED


def test_nothing_is_taken_past_its_deadline() -> None:
    now = timezone.now()
    batch = new_batch(created_at=now - timedelta(hours=25), expires_at=now - timedelta(hours=1))
    batches.begin(batch.pk, rows_of(batch, 2))
    assert new_source().claim(2) == []
    assert pending.expire(now)[0] == 2
    batch.refresh_from_db()
    assert (batch.expired, batch.status) == (2, Batch.Status.FINALIZING)


def test_what_an_engine_does_not_end_at_its_deadline_is_taken_from_it() -> None:
    batch = begun(1)
    source = new_source()
    (item,) = source.claim(1)
    deadline = batch.expires_at
    assert pending.expire(deadline + timedelta(seconds=1))[0] == 0
    assert pending.expire(deadline + timedelta(seconds=31))[0] == 1
    assert source.renew([item.request.id]) == {item.request.id}
    source.finish([finished(item)])
    assert row(item.request.id).outcome == Work.Outcome.EXPIRED
    assert not LedgerEntry.objects.exists()


def test_nothing_is_half_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = begun(2)
    source = new_source()
    items = source.claim(2)

    def fail(*_: object) -> None:
        raise DatabaseError("the connection is lost")

    with monkeypatch.context() as patched:
        patched.setattr("jobs.work.counts.count", fail)
        with pytest.raises(DatabaseError):
            source.finish([finished(each) for each in items])
    assert not LedgerEntry.objects.exists()
    assert not RequestRecord.objects.exists()
    source.finish([finished(each) for each in items])
    batch.refresh_from_db()
    assert batch.completed == 2


def test_work_of_nobody_is_no_work() -> None:
    source = new_source()
    assert source.claim(4) == []
    source.finish([])
    source.give_back([])
    source.give_back([str(uuid.uuid4())])
    assert source.renew([]) == set()
    source.close()
    source.close()


def test_a_row_that_was_cancelled_while_it_ran_is_billed_only_if_it_finished() -> None:
    batch = begun(2)
    source = new_source()
    one, other = source.claim(2)
    for item in (one, other):
        assert cancel(item.request.id)
    assert source.renew([one.request.id, other.request.id]) == {one.request.id, other.request.id}
    source.finish([finished(one), result(other, ending=Ending.CANCELLED)])
    batch.refresh_from_db()
    assert (batch.completed, batch.cancelled) == (1, 1)
    assert LedgerEntry.objects.get(request_id=one.request.id).description == ""
    assert LedgerEntry.objects.get(request_id=other.request.id).description == "waived: failed"
