"""The operator's command for refunds."""

from __future__ import annotations

from datetime import UTC, datetime
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction

from jobs import ledger
from jobs.ledger import Charge
from jobs.models import LedgerEntry, Price
from tests.records import KEY, USAGE, new_id

pytestmark = pytest.mark.django_db

SOME_ID = "01890a5d-ac96-774b-bcce-b302099a8057"


def run(*args: str) -> str:
    output = StringIO()
    call_command("refund", *args, stdout=output)
    return output.getvalue()


@pytest.fixture
def request_id() -> str:
    """Return the id of a request that has cost 190 micro-units."""
    price = Price.objects.create(
        model="m",
        input_micros_per_mtok=1_000_000,
        cached_input_micros_per_mtok=500_000,
        cache_write_micros_per_mtok=2_000_000,
        output_micros_per_mtok=3_000_000,
    )
    made = new_id()
    charge = Charge(
        request_id=made,
        team_id=1,
        lane="realtime",
        key_id=KEY,
        model="m",
        usage=USAGE,
        cost_micros=190,
        price_id=price.pk,
    )
    with transaction.atomic():
        ledger.charge([charge], datetime.now(UTC))
    return made


def test_all_is_given_back_once(request_id: str) -> None:
    said = run(f"msg_{request_id}", "--description", "sorry")
    assert said == run(request_id) == "Gave back 0.00019; the balance is 0.\n"
    entry = LedgerEntry.objects.get(kind="refund")
    assert (entry.amount_micros, entry.description) == (190, "sorry")
    assert entry.actor == "manage.py refund"


def test_a_part_is_given_back(request_id: str) -> None:
    assert run(request_id, "0.0001") == "Gave back 0.0001; the balance is -0.00009.\n"


def test_no_more_is_given_back_than_it_cost(request_id: str) -> None:
    with pytest.raises(CommandError, match="no more can be given back"):
        run(request_id, "1")


@pytest.mark.parametrize(
    ("request_id", "message"),
    [("nonsense", "is not the id of a request"), (SOME_ID, "has no entry in the ledger")],
)
def test_it_says_what_it_does_not_find(request_id: str, message: str) -> None:
    with pytest.raises(CommandError, match=message):
        run(request_id)
