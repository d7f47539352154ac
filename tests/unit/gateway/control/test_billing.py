"""The ledger, and credit."""

from __future__ import annotations

from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries, DjangoCaptureOnCommitCallbacks

from jobs import ledger
from jobs.models import LedgerEntry
from jobs.quota.client import Settler
from tests.unit.gateway.control.conftest import Caller

pytestmark = pytest.mark.django_db


def top_up(caller: Caller, nonce: str, amount: int = 1_000, **body: str) -> Any:
    return caller.send("POST", f"billing/topups?nonce={nonce}", {"amount_micros": amount, **body})


def test_a_top_up_is_booked_under_the_key_s_prefix(caller: Caller) -> None:
    answer = top_up(caller, "n1", 2_500_000, description="invoice 7")
    assert answer.status_code == 201
    body = answer.json()
    assert (body["id"], body["type"], body["amount_micros"]) == (1, "topup", 2_500_000)
    assert (body["balance_after_micros"], body["checkout_url"]) == (2_500_000, None)
    entry = LedgerEntry.objects.get()
    assert (entry.account_id, entry.description) == (caller.team.id, "invoice 7")
    assert entry.actor == f"key {caller.key.prefix}"


def test_the_same_nonce_counts_once_and_answers_the_same(caller: Caller) -> None:
    first, second = top_up(caller, "n1"), top_up(caller, "n1")
    assert first.json() == second.json()
    assert second.status_code == 201
    assert LedgerEntry.objects.count() == 1


def test_another_amount_under_the_same_nonce_is_refused(caller: Caller) -> None:
    top_up(caller, "n1", 1_000)
    assert top_up(caller, "n1", 2_000).status_code == 400
    assert LedgerEntry.objects.get().amount_micros == 1_000


def test_teams_do_not_share_nonces(caller: Caller, stranger: Caller) -> None:
    for one in (caller, stranger):
        assert top_up(one, "n1").status_code == 201
    assert LedgerEntry.objects.count() == 2


@pytest.mark.parametrize(
    ("query", "body", "message"),
    [
        ("", {"amount_micros": 1}, "nonce: This field is required."),
        ("?nonce=", {"amount_micros": 1}, "nonce: This field is required."),
        ("?nonce=" + "n" * 101, {"amount_micros": 1}, "nonce: Ensure this field has no more"),
        ("?nonce=n", {}, "amount_micros: This field is required."),
        ("?nonce=n", {"amount_micros": 0}, "amount_micros: Ensure this value is greater"),
        ("?nonce=n", {"amount_micros": -5}, "amount_micros: Ensure this value is greater"),
        ("?nonce=n", {"amount_micros": 1.5}, "amount_micros: A valid integer is required."),
        ("?nonce=n", {"amount_micros": 10**30}, "amount_micros: Ensure this value is less"),
        ("?nonce=n", {"amount": 1}, "amount: there is no such field"),
        ("?nonce=n", [], "Invalid data. Expected a dictionary, but got list."),
    ],
)
def test_a_wrong_top_up_is_refused_with_the_field_s_name(
    caller: Caller, query: str, body: object, message: str
) -> None:
    response = caller.send("POST", f"billing/topups{query}", body)
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith(message)
    assert not LedgerEntry.objects.exists()


def test_gateways_are_told_of_a_top_up_after_the_commit(
    caller: Caller,
    monkeypatch: pytest.MonkeyPatch,
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    told: list[tuple[int, int]] = []

    def settle(self: object, team_id: int, state: ledger.AccountState) -> None:
        told.append((team_id, state.balance_micros))

    monkeypatch.setattr(Settler, "settle", settle)
    with django_capture_on_commit_callbacks(execute=True):
        top_up(caller, "n1", 5)
        assert told == []
    assert told == [(caller.team.id, 5)]


def test_transactions_are_listed_newest_first_from_cursor_to_cursor(caller: Caller) -> None:
    for number in range(5):
        ledger.top_up(caller.team.id, number + 1, description=f"entry {number + 1}")
    seen: list[int] = []
    cursor: dict[str, object] = {}
    while True:
        page = caller.get("billing/transactions", limit=2, **cursor).json()
        seen += [item["id"] for item in page["items"]]
        if page["next_starting_after"] is None:
            break
        cursor = {"starting_after": page["next_starting_after"]}
    assert seen == [5, 4, 3, 2, 1]


def test_a_transaction_has_every_key_of_the_contract(caller: Caller) -> None:
    ledger.adjust(caller.team.id, -7, description="a correction")
    (item,) = caller.get("billing/transactions").json()["items"]
    assert item.pop("created_at").endswith("Z")
    assert item == {
        "id": 1,
        "type": "adjustment",
        "amount_micros": -7,
        "balance_after_micros": -7,
        "description": "a correction",
        "request_id": None,
        "external_provider": None,
        "external_payment_id": None,
    }


def test_transactions_of_another_team_are_not_told(caller: Caller, stranger: Caller) -> None:
    ledger.top_up(caller.team.id, 5)
    for cursor in ({}, {"starting_after": 99}):
        page = stranger.get("billing/transactions", **cursor).json()
        assert page == {"items": [], "next_starting_after": None}


def test_transactions_take_two_queries(
    caller: Caller, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for _ in range(5):
        ledger.top_up(caller.team.id, 5)
    with django_assert_num_queries(2):
        assert len(caller.get("billing/transactions").json()["items"]) == 5


@pytest.mark.parametrize("query", [{"limit": 0}, {"limit": 101}, {"starting_after": "x"}])
def test_a_wrong_page_of_transactions_is_refused(caller: Caller, query: dict[str, object]) -> None:
    assert caller.get("billing/transactions", **query).status_code == 400
