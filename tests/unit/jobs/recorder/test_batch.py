"""A batch of records in one transaction: rows, bodies, entries, uses of keys."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from inference.events import Usage
from inference.transport.records import Ending, Record
from jobs.models import KeyUse, LedgerEntry, Price, RequestBody, RequestRecord, UsageDay
from jobs.recorder.batch import write
from jobs.recorder.settling import Settlement
from jobs.recorder.sweep import settle_overdue
from jobs.seals import SEAL_AFTER, seal_batch
from tests.records import ANSWER, KEY, admitted, closed, completed, new_id, unserved

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 8, 7, 12, 0, 0, 0, UTC)
AT_S = NOW.timestamp() - 5


@pytest.fixture(autouse=True)
def _price() -> None:
    """Let every token cost one micro-unit."""
    Price.objects.create(
        model="m",
        effective_from=NOW - timedelta(days=1),
        input_micros_per_mtok=1_000_000,
        cached_input_micros_per_mtok=1_000_000,
        cache_write_micros_per_mtok=1_000_000,
        output_micros_per_mtok=1_000_000,
    )


def story(request_id: str, **who: object) -> list[Record]:
    return [
        admitted(request_id, AT_S, **who),
        completed(request_id, AT_S, **{k: v for k, v in who.items() if k in ("team_id", "key_id")}),
        closed(request_id, AT_S),
    ]


def write_one_by_one(records: Sequence[Record]) -> list[Settlement]:
    return [settlement for record in records for settlement in write([record], NOW)]


@pytest.mark.parametrize("together", [True, False])
def test_three_records_make_a_settled_row_and_one_entry(together: bool) -> None:
    request_id = new_id()
    records = story(request_id)
    told = write(records, NOW) if together else write_one_by_one(records)
    row = RequestRecord.objects.get()
    assert (str(row.id), row.status, row.settled_at, row.cost_micros) == (
        request_id,
        "completed",
        NOW,
        130,
    )
    entry = LedgerEntry.objects.get()
    assert (str(entry.request_id), entry.account_id, entry.amount_micros) == (request_id, 1, -130)
    (settlement,) = told
    assert (settlement.team_id, settlement.state.version) == (1, 1)
    assert (settlement.state.balance_micros, settlement.state.day_spent_micros) == (-130, 130)
    (settled,) = settlement.requests
    assert (settled.request_id, settled.settled) == (request_id, True)
    assert (settled.prompt_tokens, settled.output_tokens) == (100, 30)


def test_a_row_shows_what_is_known_so_far() -> None:
    write([admitted(new_id(), AT_S)], NOW)
    row = RequestRecord.objects.get()
    assert (row.status, row.settled_at, row.cost_micros) == ("running", None, None)
    assert LedgerEntry.objects.count() == 0


def test_a_replay_changes_nothing_but_tells_the_quota_again() -> None:
    records = story(new_id())
    first = write(records, NOW)
    before = RequestRecord.objects.values().get()
    again = write(records, NOW + timedelta(seconds=1))
    assert RequestRecord.objects.values().get() == before
    assert LedgerEntry.objects.count() == 1
    assert UsageDay.objects.get().requests == 1
    assert [(each.state.version, each.requests) for each in again] == [
        (each.state.version, each.requests) for each in first
    ]


def test_teams_are_told_apart() -> None:
    ids = [new_id() for _ in range(6)]
    records = [
        each for n, request_id in enumerate(ids) for each in story(request_id, team_id=n % 3)
    ]
    told = {each.team_id: each for each in write(records, NOW)}
    # Team 0 is nobody.
    assert sorted(told) == [1, 2]
    assert {each.request_id for each in told[1].requests} == {ids[1], ids[4]}
    assert told[2].state.balance_micros == -260


def test_bodies_and_answers_are_kept_compressed() -> None:
    request_id = new_id()
    write_one_by_one(story(request_id))
    body = RequestBody.objects.get()
    assert (str(body.record_id), body.created_at.timestamp()) == (request_id, AT_S)
    assert body.body is not None
    assert body.answer is not None
    assert zlib.decompress(body.body) == b'{"model":"m"}'
    assert zlib.decompress(body.answer) == ANSWER


def test_what_may_not_be_kept_is_not() -> None:
    request_id = new_id()
    write([admitted(request_id, body=None), closed(request_id, answer=None)], NOW)
    assert RequestBody.objects.count() == 0


def test_the_last_use_of_a_key_is_known() -> None:
    other = new_id()
    write([admitted(new_id(), AT_S), admitted(new_id(), AT_S + 2)], NOW)
    write([admitted(new_id(), AT_S + 1), admitted(new_id(), AT_S, key_id=other)], NOW)
    uses = {str(use.key_id): use.last_used_at.timestamp() for use in KeyUse.objects.all()}
    assert uses == {KEY: AT_S + 2, other: AT_S}


def test_a_late_word_about_a_sealed_row_is_billed_all_the_same() -> None:
    request_id = new_id()
    write([admitted(request_id, AT_S), unserved(request_id, AT_S, ending=Ending.CANCELLED)], NOW)
    assert seal_batch(NOW + 2 * SEAL_AFTER) == 1
    write([completed(request_id, AT_S)], NOW)
    assert LedgerEntry.objects.get().amount_micros == -130
    assert RequestRecord.objects.get().cost_micros is None


def test_a_request_that_has_an_entry_keeps_it_although_its_row_is_gone() -> None:
    request_id = new_id()
    usage = Usage(prompt_tokens=1, cached_tokens=0, output_tokens=0)
    write([admitted(request_id, AT_S), completed(request_id, AT_S), closed(request_id)], NOW)
    RequestRecord.objects.filter(id=request_id).update(settled_at=None, cost_micros=None)
    write([completed(request_id, AT_S, usage=usage), closed(request_id)], NOW)
    assert LedgerEntry.objects.get().amount_micros == -130
    assert RequestRecord.objects.get().cost_micros == 130


def test_the_sweep_settles_what_is_overdue_and_nothing_else() -> None:
    silent, cut, running = new_id(), new_id(), new_id()
    write([admitted(silent, AT_S, deadline_s=AT_S + 1)], NOW)
    write([admitted(cut, AT_S), completed(cut, AT_S, ending=Ending.CANCELLED)], NOW)
    write([admitted(running, AT_S)], NOW)
    later = NOW + timedelta(seconds=60)
    (settlement,) = settle_overdue(NOW, later)
    assert {each.request_id for each in settlement.requests} == {silent, cut}
    rows = {str(row.id): row for row in RequestRecord.objects.all()}
    assert (rows[silent].ending, rows[silent].cost_micros) == ("gateway_lost", 0)
    assert (rows[cut].ending, rows[cut].cost_micros) == ("cancelled", 130)
    assert rows[cut].settled_at == later
    assert (rows[running].status, rows[running].settled_at) == ("running", None)
    assert settle_overdue(NOW, later) == []


def test_a_request_of_nobody_is_settled_without_an_entry() -> None:
    write([closed(new_id(), AT_S)], NOW)
    assert settle_overdue(NOW, NOW) == []
    assert RequestRecord.objects.get().settled_at == NOW
    assert LedgerEntry.objects.count() == 0
