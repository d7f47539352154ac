"""A recount finds whatever differs from what the entries make."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.db.models import F

from jobs import ledger
from jobs.ledger import Charge
from jobs.models import Account, LedgerEntry, Price, RequestRecord, UsageDay
from jobs.recount import Recount
from tests.records import KEY, USAGE, new_id

pytestmark = pytest.mark.django_db(transaction=True)

NOW = datetime(2026, 8, 7, 23, 59, 0, 0, UTC)


@pytest.fixture(autouse=True)
@transaction.atomic
def _ledger() -> None:
    """Post something for teams 1 and 2."""
    price = Price.objects.create(
        model="m",
        input_micros_per_mtok=1_000_000,
        cached_input_micros_per_mtok=500_000,
        cache_write_micros_per_mtok=2_000_000,
        output_micros_per_mtok=3_000_000,
    )
    usage: dict[str, Any] = {"key_id": KEY, "model": "m", "usage": USAGE}
    paid = usage | {"cost_micros": 70 + 10 + 20 + 90, "price_id": price.pk}
    for team_id in (1, 2):
        ledger.top_up(team_id, 1000)
        ledger.charge(
            [
                Charge(request_id=new_id(), team_id=team_id, lane="realtime", **paid),
                Charge(request_id=new_id(), team_id=team_id, lane="realtime", **paid),
            ],
            NOW,
        )
        ledger.charge(
            [
                Charge(
                    request_id=new_id(),
                    team_id=team_id,
                    lane="batch",
                    **(usage | {"cost_micros": 0, "price_id": None, "reason": "waived: failed"}),
                )
            ],
            NOW + timedelta(minutes=1),
        )


def findings(team_id: int | None = None) -> list[str]:
    return list(Recount(team_id).findings())


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    recount = Recount()
    assert list(recount.findings()) == []
    assert recount.entries == 8


def test_a_balance_that_does_not_follow_shows() -> None:
    tamper(lambda: LedgerEntry.objects.filter(number=2).update(balance_after_micros=F("number")))
    assert findings(1) == ["team 1: entry 2 leaves 2, but the entries to it make 810"]


def tamper(change: Callable[[], object]) -> None:
    """Change what the database refuses to change."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE jobs_ledgerentry DISABLE TRIGGER USER")
        try:
            change()
        finally:
            cursor.execute("ALTER TABLE jobs_ledgerentry ENABLE TRIGGER USER")


def test_an_entry_that_is_gone_is_missed() -> None:
    tamper(lambda: LedgerEntry.objects.filter(account_id=1, number=1).delete())
    found = findings(1)
    assert "team 1: entry 2 is where entry 1 should be" in found
    assert "team 1: the account has 620 after 4 entries, but 3 entries make -380" in found


def test_a_price_that_was_changed_afterwards_shows() -> None:
    Price.objects.update(output_micros_per_mtok=4_000_000)
    assert findings() == [
        f"team {team_id}: entry {number} takes 190, but its tokens cost 220"
        for team_id in (1, 2)
        for number in (2, 3)
    ]


def test_an_entry_that_is_not_what_the_trail_says_shows() -> None:
    entries = LedgerEntry.objects.filter(account_id=1, kind="usage").order_by("number")
    told, free, _ = [str(request_id) for (request_id,) in entries.values_list("request_id")]
    missing = new_id()
    for request_id, cost in ((told, 190), (free, 191), (missing, 5)):
        RequestRecord.objects.create(
            id=request_id, team_id=1, model="m", created_at=NOW, cost_micros=cost
        )
    RequestRecord.objects.create(id=new_id(), team_id=1, model="m", created_at=NOW)
    assert sorted(findings(1)) == sorted(
        [
            f"team 1: request {free} cost 191 by the audit trail, but its entry takes 190",
            f"team 1: request {missing} cost 5 by the audit trail, but it has no entry",
        ]
    )


def test_an_account_that_differs_shows() -> None:
    Account.objects.filter(team_id=2).update(balance_micros=1)
    assert findings() == ["team 2: the account has 1 after 4 entries, but 4 entries make 620"]
    assert findings(1) == []


@pytest.mark.parametrize(
    ("field", "kept", "counted"),
    [("requests", 3, 2), ("output_tokens", 61, 60), ("cost_micros", 381, 380)],
)
def test_usage_by_day_that_differs_shows(field: str, kept: int, counted: int) -> None:
    UsageDay.objects.filter(team_id=1, lane="realtime").update(**{field: F(field) + 1})
    assert findings() == [
        f"team 1: usage on 2026-08-07 of m, realtime: {field} is {kept}, "
        f"but the entries make {counted}"
    ]


def test_usage_by_day_that_is_missing_shows() -> None:
    UsageDay.objects.filter(team_id=1, lane="batch").delete()
    assert (
        "team 1: usage on 2026-08-08 of m, batch: requests is 0, but the entries make 1"
        in findings()
    )


def test_usage_of_a_team_without_an_account_shows() -> None:
    UsageDay.objects.create(
        team_id=3, key_id=KEY, day=NOW.date(), model="m", lane="realtime", requests=1
    )
    assert findings() == [
        "team 3: usage on 2026-08-07 of m, realtime: requests is 1, but the entries make 0"
    ]


def test_the_command_says_how_much_it_recounted() -> None:
    output = StringIO()
    call_command("verify_ledger", stdout=output)
    assert output.getvalue() == "Recounted 8 entries.\n"


def test_the_command_can_be_asked_for_one_team() -> None:
    Account.objects.filter(team_id=2).update(balance_micros=1)
    output = StringIO()
    call_command("verify_ledger", "--team", "1", stdout=output)
    assert output.getvalue() == "Recounted 4 entries.\n"


def test_the_command_fails_where_something_is_wrong() -> None:
    Account.objects.filter(team_id=2).update(balance_micros=1)
    output = StringIO()
    with pytest.raises(CommandError, match="1 findings"):
        call_command("verify_ledger", stdout=output, no_color=True)
    assert "team 2: the account has 1 after 4 entries" in output.getvalue()
