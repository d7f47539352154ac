"""Usage as CSV: every billed request once, safe to open, whole or not there."""

from __future__ import annotations

import csv
import re
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command

from jobs import usage_csv
from jobs.models import Account, LedgerEntry
from tests.unit.jobs.trail import make_row

pytestmark = pytest.mark.django_db

ROOT = Path(__file__).resolve().parents[3]
AUGUST = ("--from", "2026-08-01", "--to", "2026-08-31")


def bill(at: datetime, *, team: int = 1, cost: int = 5, **fields: Any) -> LedgerEntry:
    """Make a row of the trail and its entry."""
    row = make_row(created_at=at, team_id=team, **fields)
    account, _ = Account.objects.get_or_create(team_id=team)
    account.entries += 1
    account.balance_micros -= cost
    account.save()
    return LedgerEntry.objects.create(
        account=account,
        number=account.entries,
        kind=LedgerEntry.Kind.USAGE,
        reference=str(row.pk),
        request_id=row.pk,
        amount_micros=-cost,
        balance_after_micros=account.balance_micros,
        created_at=at,
        model=row.model,
        lane=row.lane,
        input_tokens=30,
        cached_tokens=10,
        cache_written_tokens=5,
        output_tokens=20,
    )


def export(*arguments: str) -> str:
    out = StringIO(newline="")
    call_command("export_usage", *arguments, stdout=out, stderr=StringIO())
    return out.getvalue()


def lines(*arguments: str) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(export(*arguments), newline=""), strict=True))


def at(day: int, hour: int = 0, month: int = 8) -> datetime:
    return datetime(2026, month, day, hour, tzinfo=UTC)


def test_a_line_says_what_was_billed_for_which_request() -> None:
    entry = bill(at(7, 12) + timedelta(microseconds=5), cost=123)
    assert lines(*AUGUST) == [
        {
            "request_id": str(entry.request_id),
            "billed_at": "2026-08-07T12:00:00.000005Z",
            "team_id": "1",
            "model": "m",
            "lane": "realtime",
            "input_tokens": "30",
            "cached_tokens": "10",
            "cache_written_tokens": "5",
            "output_tokens": "20",
            "cost_micros": "123",
            "price_id": "",
            "entry": "1",
            "team": "Größe",
            "key_id": str(UUID(int=7)),
            "key": 'a "quoted" key',
            "status": "completed",
            "ending": "finished",
        }
    ]


def test_the_docs_describe_every_column() -> None:
    page = (ROOT / "docs" / "audit.md").read_text(encoding="utf-8")
    table = page.partition("## Usage as CSV")[2]
    cells = re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE)
    assert re.findall(r"`(\w+)`", " ".join(cells)) == list(usage_csv.COLUMNS)


def test_both_days_are_included_and_no_other() -> None:
    for moment in (at(31, 23, month=7), at(1), at(31, 23), at(1, month=9)):
        bill(moment)
    assert [line["billed_at"][:10] for line in lines(*AUGUST)] == ["2026-08-01", "2026-08-31"]


def test_one_team_can_be_asked_for() -> None:
    bill(at(1), team=1)
    bill(at(2), team=2)
    assert [line["team_id"] for line in lines(*AUGUST)] == ["1", "2"]
    assert [line["team_id"] for line in lines(*AUGUST, "--team", "2")] == ["2"]


def test_only_usage_is_exported() -> None:
    bill(at(1))
    account = Account.objects.get()
    LedgerEntry.objects.create(
        account=account,
        number=2,
        kind=LedgerEntry.Kind.TOP_UP,
        reference="nonce",
        amount_micros=100,
        balance_after_micros=95,
        created_at=at(2),
    )
    assert [line["entry"] for line in lines(*AUGUST)] == ["1"]


def test_lines_stay_when_the_trail_is_pruned() -> None:
    entry = bill(at(1))
    other = make_entry_without_row(entry.account)
    pruned = lines(*AUGUST)[1]
    assert pruned["request_id"] == str(other)
    assert [pruned[name] for name in ("team", "key_id", "key", "status", "ending")] == [""] * 5
    assert pruned["cost_micros"] == "0"


def make_entry_without_row(account: Account) -> UUID:
    request_id = UUID(int=99)
    LedgerEntry.objects.create(
        account=account,
        number=2,
        kind=LedgerEntry.Kind.USAGE,
        reference="r",
        request_id=request_id,
        amount_micros=0,
        balance_after_micros=account.balance_micros,
        created_at=at(2),
    )
    return request_id


def test_every_line_comes_once_whatever_the_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_csv, "_ROWS_AT_ONCE", 3)
    entries = [bill(at(1) + timedelta(hours=number)) for number in range(10)]
    assert [line["request_id"] for line in lines(*AUGUST)] == [
        str(entry.request_id) for entry in entries
    ]


@pytest.mark.parametrize(
    "text",
    ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "  =1", "=cmd|' /C calc'!A0"],
)
def test_no_cell_is_a_formula(text: str) -> None:
    bill(at(1), key_name=text, team_name=text)
    (line,) = lines(*AUGUST)
    assert line["key"] == line["team"] == f"'{text}"


@pytest.mark.parametrize("text", ["a,b", 'a "b"', "a\r\nb", "a\nb", "", "a=b", "日本"])
def test_every_other_text_comes_through(text: str) -> None:
    bill(at(1), key_name=text)
    assert [line["key"] for line in lines(*AUGUST)] == [text]


def test_lines_end_as_the_rfc_says() -> None:
    bill(at(1))
    text = export(*AUGUST)
    assert text.count("\r\n") == text.count("\n") == 2
    assert text.startswith("request_id,billed_at,")


def test_no_usage_gives_the_heading_alone() -> None:
    assert export(*AUGUST).count("\r\n") == 1


def test_a_file_is_written_whole(tmp_path: Path) -> None:
    bill(at(1))
    path = tmp_path / "usage.csv"
    assert export(*AUGUST, "--out", str(path)) == ""
    assert path.read_bytes().decode() == export(*AUGUST)
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_not_there_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bill(at(1))
    monkeypatch.setattr(usage_csv, "_trail_of", lambda request_ids: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        export(*AUGUST, "--out", str(tmp_path / "usage.csv"))
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"cannot write .*usage\.csv: No such file"):
        export(*AUGUST, "--out", str(tmp_path / "nowhere" / "usage.csv"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--from", "2026-08-02", "--to", "2026-08-01"), "--to is before --from"),
        (("--from", "2026-02-30", "--to", "2026-03-01"), "must be a day"),
        (("--from", "August", "--to", "2026-03-01"), "must be a day"),
    ],
)
def test_it_refuses_days_that_are_none(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(CommandError, match=message):
        export(*arguments)
