"""Movements of money."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from inference.errors import ErrorCode, TandemError
from inference.events import Usage
from jobs import ledger
from jobs.amounts import MAX_MICROS
from jobs.ledger import AccountState, Charge
from jobs.models import Account, LedgerEntry, UsageDay
from tests.records import KEY, USAGE, new_id

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 8, 7, 12, 0, 0, 0, UTC)


def make_charge(**fields: Any) -> Charge:
    defaults: dict[str, Any] = {
        "request_id": new_id(),
        "team_id": 1,
        "key_id": KEY,
        "model": "m",
        "lane": "realtime",
        "usage": USAGE,
        "cost_micros": 5,
        "price_id": None,
    }
    return Charge(**(defaults | fields))


def entries(team_id: int = 1) -> list[tuple[int, str, int, int]]:
    found = LedgerEntry.objects.filter(account_id=team_id).order_by("number")
    return [
        (each.number, each.kind, each.amount_micros, each.balance_after_micros) for each in found
    ]


def test_entries_are_numbered_and_each_follows_from_the_one_before() -> None:
    ledger.top_up(1, 100)
    ledger.charge([make_charge(cost_micros=30), make_charge(cost_micros=0)], NOW)
    ledger.adjust(1, -20)
    assert entries() == [
        (1, "topup", 100, 100),
        (2, "usage", -30, 70),
        (3, "usage", 0, 70),
        (4, "adjustment", -20, 50),
    ]
    account = Account.objects.get()
    assert (account.balance_micros, account.entries) == (50, 4)


def test_a_usage_entry_says_what_it_was_computed_from() -> None:
    charge = make_charge(reason="waived: failed")
    assert ledger.charge([charge], NOW) == {charge.request_id: 5}
    entry = LedgerEntry.objects.get()
    assert (str(entry.request_id), entry.reference) == (charge.request_id, charge.request_id)
    assert (entry.model, entry.lane, entry.description) == ("m", "realtime", "waived: failed")
    assert (entry.input_tokens, entry.cached_tokens) == (100, 20)
    assert (entry.cache_written_tokens, entry.output_tokens) == (10, 30)
    assert entry.created_at == NOW


def test_a_request_is_charged_once() -> None:
    charge = make_charge(cost_micros=5)
    ledger.charge([charge], NOW)
    dearer = make_charge(request_id=charge.request_id, cost_micros=9)
    assert ledger.charge([dearer], NOW) == {charge.request_id: 5}
    assert entries() == [(1, "usage", -5, -5)]
    assert UsageDay.objects.get().requests == 1


def test_a_request_that_is_charged_twice_at_once_is_charged_once() -> None:
    charge = make_charge()
    assert ledger.charge([charge, charge], NOW) == {charge.request_id: 5}
    assert len(entries()) == 1


def test_usage_is_added_up_by_day_key_model_and_lane() -> None:
    other_key = new_id()
    ledger.charge([make_charge(), make_charge(), make_charge(key_id=other_key)], NOW)
    ledger.charge([make_charge(), make_charge(lane="batch"), make_charge(model="n")], NOW)
    ledger.charge([make_charge(team_id=2)], NOW + timedelta(days=1))
    found = {
        (day.team_id, str(day.key_id), day.day, day.model, day.lane): day
        for day in UsageDay.objects.all()
    }
    today = date(2026, 8, 7)
    assert {key: day.requests for key, day in found.items()} == {
        (1, KEY, today, "m", "realtime"): 3,
        (1, other_key, today, "m", "realtime"): 1,
        (1, KEY, today, "m", "batch"): 1,
        (1, KEY, today, "n", "realtime"): 1,
        (2, KEY, today + timedelta(days=1), "m", "realtime"): 1,
    }
    day = found[1, KEY, today, "m", "realtime"]
    assert (day.input_tokens, day.cached_tokens, day.cache_written_tokens) == (300, 60, 30)
    assert (day.output_tokens, day.cost_micros) == (90, 15)


def test_a_top_up_with_a_nonce_is_made_once() -> None:
    first = ledger.top_up(1, 100, nonce="payment-1", actor="root", description="thanks")
    assert ledger.top_up(1, 100, nonce="payment-1") == first
    assert (first.actor, first.description, first.reference) == ("root", "thanks", "payment-1")
    assert ledger.top_up(2, 100, nonce="payment-1") != first
    assert ledger.top_up(1, 100) != ledger.top_up(1, 100)
    assert [amount for _, _, amount, _ in entries()] == [100, 100, 100]


def test_a_nonce_stands_for_one_amount() -> None:
    ledger.top_up(1, 100, nonce="payment-1")
    with pytest.raises(TandemError, match="top-up payment-1 was made already") as caught:
        ledger.top_up(1, 200, nonce="payment-1")
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert len(entries()) == 1


@pytest.mark.parametrize("amount", [0, -1, MAX_MICROS + 1])
def test_a_top_up_is_positive_and_not_too_large(amount: int) -> None:
    with pytest.raises(TandemError, match="the amount must be"):
        ledger.top_up(1, amount)


@pytest.mark.parametrize("amount", [0, MAX_MICROS + 1, -MAX_MICROS - 1])
def test_an_adjustment_is_not_nothing_and_not_too_large(amount: int) -> None:
    with pytest.raises(TandemError, match="the amount must be"):
        ledger.adjust(1, amount)


def test_an_adjustment_with_a_nonce_is_made_once() -> None:
    first = ledger.adjust(1, -5, nonce="n", actor="root", description="sorry")
    assert ledger.adjust(1, -5, nonce="n") == first


@pytest.mark.parametrize("field", ["nonce", "description", "actor"])
def test_what_does_not_fit_is_refused(field: str) -> None:
    with pytest.raises(TandemError, match="characters"):
        ledger.top_up(1, 100, **{field: "x" * 501})
    with pytest.raises(TandemError, match="characters"):
        ledger.top_up(1, 100, **{field: "\0"})


def test_a_request_is_refunded_once() -> None:
    charge = make_charge(cost_micros=30)
    ledger.charge([charge], NOW)
    first = ledger.refund(charge.request_id, actor="root")
    assert ledger.refund(charge.request_id) == first
    assert entries() == [(1, "usage", -30, -30), (2, "refund", 30, 0)]
    assert first.description == f"Refund of request {charge.request_id}"


def test_a_part_of_what_a_request_cost_is_refunded() -> None:
    charge = make_charge(cost_micros=30)
    ledger.charge([charge], NOW)
    assert ledger.refund(charge.request_id, 10).balance_after_micros == -20
    with pytest.raises(TandemError, match="was made already, of 10 micro-units"):
        ledger.refund(charge.request_id, 20)


def test_no_more_is_refunded_than_a_request_cost() -> None:
    charge = make_charge(cost_micros=30)
    ledger.charge([charge], NOW)
    with pytest.raises(TandemError, match="no more can be given back"):
        ledger.refund(charge.request_id, 31)
    free = make_charge(cost_micros=0)
    ledger.charge([free], NOW)
    with pytest.raises(TandemError, match="cost 0 micro-units"):
        ledger.refund(free.request_id)


def test_what_was_never_charged_is_not_refunded() -> None:
    with pytest.raises(TandemError, match="has no entry") as caught:
        ledger.refund(new_id())
    assert caught.value.code is ErrorCode.NOT_FOUND


def test_the_state_has_the_balance_and_what_was_spent_today_and_this_month() -> None:
    usage = Usage(prompt_tokens=0, cached_tokens=0, output_tokens=0)
    for days, cost in ((-8, 1), (-7, 10), (-1, 100), (0, 1000)):
        charge = make_charge(cost_micros=cost, usage=usage)
        ledger.charge(
            [charge, make_charge(cost_micros=cost, model="n")], NOW + timedelta(days=days)
        )
    ledger.charge([make_charge(team_id=2)], NOW)
    ledger.top_up(1, 5000)
    assert ledger.read_states([1, 3], NOW) == {
        1: AccountState(
            version=9,
            balance_micros=5000 - 2222,
            day="2026-08-07",
            day_spent_micros=2000,
            month="2026-08",
            month_spent_micros=2200,
        ),
        3: AccountState(
            version=0,
            balance_micros=0,
            day="2026-08-07",
            day_spent_micros=0,
            month="2026-08",
            month_spent_micros=0,
        ),
    }


def test_the_state_of_now_is_read_by_team() -> None:
    ledger.top_up(1, 100)
    state = ledger.read_state(1)
    assert (state.version, state.balance_micros) == (1, 100)
    assert state.day.startswith(state.month)


def test_a_balance_stays_within_what_every_part_can_hold() -> None:
    ledger.top_up(1, MAX_MICROS)
    with pytest.raises(TandemError, match="the balance would be beyond"):
        ledger.top_up(1, 1)
    ledger.adjust(1, -MAX_MICROS)
    ledger.adjust(1, -MAX_MICROS)
    with pytest.raises(TandemError, match="the balance would be beyond"):
        ledger.adjust(1, -1)


def make_entry(number: int, amount: int, balance: int, team_id: int = 1) -> LedgerEntry:
    return LedgerEntry(
        account_id=team_id,
        number=number,
        kind=LedgerEntry.Kind.ADJUSTMENT,
        reference=f"{number}",
        amount_micros=amount,
        balance_after_micros=balance,
    )


@pytest.mark.parametrize(
    "added",
    [
        [make_entry(2, 5, 106)],
        [make_entry(3, 5, 105)],
        [make_entry(2, 5, 105), make_entry(3, 5, 111)],
        [make_entry(2, 5, 105), make_entry(4, 5, 110)],
        [make_entry(2, 5, 105), make_entry(1, 7, 8, team_id=2)],
        [make_entry(2, 5, 105, team_id=2)],
    ],
)
def test_the_database_refuses_what_does_not_follow(added: list[LedgerEntry]) -> None:
    ledger.top_up(1, 100)
    Account.objects.create(team_id=2)
    with pytest.raises(IntegrityError, match="does not follow"), transaction.atomic():
        LedgerEntry.objects.bulk_create(added)
    assert entries() == [(1, "topup", 100, 100)]


def test_the_database_takes_many_entries_at_once_in_any_order() -> None:
    ledger.top_up(1, 100)
    Account.objects.create(team_id=2)
    added = [
        make_entry(3, 5, 110),
        make_entry(1, 7, 7, team_id=2),
        make_entry(2, 5, 105),
        make_entry(2, -9, -2, team_id=2),
    ]
    LedgerEntry.objects.bulk_create(added)
    assert [number for number, *_ in entries()] == [1, 2, 3]
    assert [number for number, *_ in entries(2)] == [1, 2]
