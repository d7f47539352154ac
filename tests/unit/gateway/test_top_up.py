"""The operator's command for payments."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from gateway.models import Team
from jobs.models import LedgerEntry

pytestmark = pytest.mark.django_db


@pytest.fixture
def team() -> Team:
    return Team.objects.create(name="blue")


def run(*args: str) -> str:
    output = StringIO()
    call_command("top_up", *args, stdout=output)
    return output.getvalue()


def test_it_adds_to_the_balance_and_says_what_it_is(team: Team) -> None:
    assert run("blue", "25.00") == f"Entry 1 of team {team.pk}; the balance is 25.\n"
    assert (
        run(str(team.pk), "0.000001") == f"Entry 2 of team {team.pk}; the balance is 25.000001.\n"
    )
    entry = LedgerEntry.objects.get(number=1)
    assert (entry.account_id, entry.kind, entry.amount_micros) == (team.pk, "topup", 25_000_000)
    assert entry.actor == "manage.py top_up"


@pytest.mark.usefixtures("team")
def test_a_nonce_makes_it_harmless_to_repeat() -> None:
    arguments = ("blue", "5", "--nonce", "payment-1", "--description", "August")
    assert run(*arguments) == run(*arguments)
    assert LedgerEntry.objects.get().description == "August"
    with pytest.raises(CommandError, match="top-up payment-1 was made already"):
        run("blue", "6", "--nonce", "payment-1")


def test_it_refuses_a_team_that_there_is_not() -> None:
    with pytest.raises(CommandError, match="there is no team 'red'"):
        run("red", "5")


@pytest.mark.usefixtures("team")
@pytest.mark.parametrize(
    ("amount", "message"),
    [
        ("five", "'five' is not an amount such as 25.00"),
        ("NaN", "at most six decimal places"),
        ("Infinity", "at most six decimal places"),
        ("1e999999999", "is not an amount"),
        ("1e99", "the amount must be from 1"),
        ("0.0000001", "at most six decimal places"),
        ("0", "the amount must be from 1"),
        ("-5", "the amount must be from 1"),
        ("9007199255", "the amount must be from 1"),
    ],
)
def test_it_refuses_what_is_no_amount(amount: str, message: str) -> None:
    with pytest.raises(CommandError, match=message):
        run("blue", "--", amount)
    assert LedgerEntry.objects.count() == 0
