"""What is over age goes, in chunks; what is not, and the ledger, stays."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.conf import settings
from django.core.management import call_command
from django.utils import timezone

from jobs import retention, seals, tasks
from jobs.models import (
    Account,
    AuditSeal,
    LedgerEntry,
    RequestBody,
    RequestMinute,
    RequestRecord,
    UsageDay,
)
from jobs.retention import prune
from jobs.seals import seal_batch
from jobs.verification import Verification
from tests.unit.jobs.trail import keep_body, make_row, tamper

pytestmark = pytest.mark.django_db

NOW = timezone.now()


@pytest.fixture(autouse=True)
def _ages(monkeypatch: pytest.MonkeyPatch) -> None:
    set_ages(monkeypatch, bodies=30, rows=400)


def set_ages(monkeypatch: pytest.MonkeyPatch, *, bodies: int, rows: int) -> None:
    changed: dict[str, Any] = {"BODY_RETENTION_DAYS": bodies, "AUDIT_RETENTION_DAYS": rows}
    monkeypatch.setattr(settings, "TANDEM", settings.TANDEM.model_copy(update=changed))


def make_sealed(at: datetime, rows: int = 1) -> list[RequestRecord]:
    """Make rows of that time under one seal, each with a body."""
    made = [make_row(created_at=at) for _ in range(rows)]
    for row in made:
        keep_body(row)
    assert seal_batch(at + timedelta(minutes=5)) == rows
    return made


def is_sound() -> bool:
    return not any(checked.findings for checked in Verification().run())


def test_bodies_go_first_and_rows_much_later() -> None:
    ages = (500, 401, 399, 31, 29, 0)
    rows = {days: make_sealed(NOW - timedelta(days=days, hours=1))[0] for days in ages}
    assert prune(patience_s=60)
    kept = {days for days, row in rows.items() if RequestRecord.objects.filter(pk=row.pk)}
    assert kept == {399, 31, 29, 0}
    with_body = {days for days, row in rows.items() if RequestBody.objects.filter(pk=row.pk)}
    assert with_body == {29, 0}
    assert is_sound()


def test_the_chain_holds_where_rows_were_pruned() -> None:
    make_sealed(NOW - timedelta(days=500), rows=3)
    make_sealed(NOW - timedelta(days=1), rows=2)
    prune(patience_s=60)
    first, second = AuditSeal.objects.order_by("number")
    assert first.pruned_at is not None
    assert (first.rows, bytes(first.leaves)) == (3, b"")
    assert second.pruned_at is None
    assert is_sound()
    # Who claims that retention did it must have its signature.
    tamper("DELETE FROM jobs_requestrecord")
    tamper(
        "UPDATE jobs_auditseal SET pruned_at = now(), leaves = '' WHERE number = 2",
        table="jobs_auditseal",
    )
    assert not is_sound()


def test_a_row_put_under_a_pruned_seal_is_found() -> None:
    make_sealed(NOW - timedelta(days=500))
    prune(patience_s=60)
    make_row(seal_id=1)
    assert not is_sound()


def test_a_seal_stays_until_all_of_its_rows_are_over_age() -> None:
    make_row(created_at=NOW - timedelta(days=401))
    make_row(created_at=NOW - timedelta(days=399))
    seal_batch(NOW - timedelta(days=398))
    prune(patience_s=60)
    assert RequestRecord.objects.count() == 2


def test_rows_without_a_seal_stay() -> None:
    make_row(created_at=NOW - timedelta(days=500), settled_at=None)
    prune(patience_s=60)
    assert RequestRecord.objects.count() == 1


def test_ledger_and_sums_stay() -> None:
    long_ago = NOW - timedelta(days=5_000)
    row = make_sealed(long_ago)[0]
    account = Account.objects.create(team_id=1, balance_micros=-5, entries=1)
    LedgerEntry.objects.create(
        account=account,
        number=1,
        kind=LedgerEntry.Kind.USAGE,
        reference=str(row.pk),
        request_id=row.pk,
        amount_micros=-5,
        balance_after_micros=-5,
        created_at=long_ago,
    )
    UsageDay.objects.create(
        team_id=1, key_id=row.pk, day=long_ago.date(), model="m", lane="realtime"
    )
    prune(patience_s=60)
    assert not RequestRecord.objects.exists()
    assert LedgerEntry.objects.count() == UsageDay.objects.count() == 1


def test_no_body_outlives_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    set_ages(monkeypatch, bodies=1_000, rows=10)
    make_sealed(NOW - timedelta(days=11))
    prune(patience_s=60)
    assert not RequestBody.objects.exists()
    assert not RequestRecord.objects.exists()


def test_everything_kept_goes_when_nothing_is_to_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    make_sealed(NOW - timedelta(minutes=10))
    set_ages(monkeypatch, bodies=0, rows=400)
    prune(patience_s=60)
    assert not RequestBody.objects.exists()
    assert RequestRecord.objects.count() == 1


def test_many_chunks_are_pruned_and_a_slice_of_them_when_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retention, "_BODIES_AT_ONCE", 2)
    monkeypatch.setattr(seals, "MAX_ROWS", 2)
    for _ in range(5):
        keep_body(make_row(created_at=NOW - timedelta(days=500)))
    while seal_batch(NOW - timedelta(days=499)):
        pass
    assert not prune(patience_s=0)
    assert RequestBody.objects.count() == 3
    assert prune(patience_s=60)
    assert prune(patience_s=60)
    assert not RequestBody.objects.exists()
    assert not RequestRecord.objects.exists()
    assert AuditSeal.objects.filter(pruned_at=None).count() == 0
    assert is_sound()


def test_a_seal_that_had_not_its_rows_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    row, _ = make_sealed(NOW - timedelta(days=500), rows=2)
    tamper("DELETE FROM jobs_requestrecord WHERE id = %s", row.pk)
    prune(patience_s=60)
    assert "Seal 1 had 1 rows, not 2" in caplog.text


def test_the_task_comes_back_for_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    again: list[bool] = []
    monkeypatch.setattr(tasks.prune, "delay", lambda: again.append(True))
    monkeypatch.setattr(retention, "prune", lambda patience_s: False)
    tasks.prune()
    assert again == [True]
    monkeypatch.setattr(retention, "prune", lambda patience_s: True)
    tasks.prune()
    assert again == [True]


def test_the_command_says_what_it_would_do_and_does_it() -> None:
    make_sealed(NOW - timedelta(days=500), rows=3)
    make_sealed(NOW - timedelta(days=40), rows=2)
    said = r"{} {} bodies from before {} and {} rows sealed before {}\.\n"
    moment = r"\d{4}-\d\d-\d\d \d\d:\d\d UTC"
    assert re.fullmatch(said.format("Would prune", 5, moment, 3, moment), run("prune", "--dry-run"))
    assert RequestBody.objects.count() == 5
    assert re.fullmatch(said.format("Pruned", 5, moment, 3, moment), run("prune"))
    assert RequestBody.objects.count() == 0
    assert RequestRecord.objects.count() == 2
    assert re.fullmatch(said.format("Pruned", 0, moment, 0, moment), run("prune"))


def run(*arguments: str) -> str:
    out = StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()


def test_figures_of_minutes_go_after_a_week_or_with_their_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ages = (timedelta(days=8), timedelta(days=6), timedelta(days=2), timedelta())
    for age in ages:
        RequestMinute.objects.create(minute=NOW - age, team_id=1, model="m", outcome="completed")

    def kept() -> set[timedelta]:
        return {NOW - each.minute for each in RequestMinute.objects.all()}

    assert prune(patience_s=60)
    assert kept() == set(ages[1:])
    set_ages(monkeypatch, bodies=30, rows=3)
    assert prune(patience_s=60)
    assert kept() == set(ages[2:])
