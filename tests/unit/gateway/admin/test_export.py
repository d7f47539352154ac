"""Lists as CSV files."""

from __future__ import annotations

import csv
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.http import StreamingHttpResponse
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from gateway.admin import export
from gateway.models import Team
from jobs import ledger
from jobs.models import RequestRecord
from tests.unit.gateway.admin.rows import KEY_ID, NOON, make_batch, make_file, make_row, new_id

pytestmark = pytest.mark.django_db

REQUESTS = "/admin/jobs/requestrecord/"
EXPORTS = [
    *("gateway/team", "gateway/apikey", "jobs/price", "jobs/requestrecord", "jobs/batch"),
    *("jobs/work", "jobs/storedfile", "jobs/storedresponse", "jobs/responsestream"),
    *("jobs/ledgerentry", "jobs/auditseal", "admin/logentry", "axes/accessattempt"),
]


def make_request(number: int, **fields: Any) -> RequestRecord:
    empty: dict[str, Any] = {
        "id": new_id(),
        "created_at": NOON + timedelta(seconds=number // 2),
        "team_id": 7,
        "key_id": KEY_ID,
        "model": "tiny",
        "lane": "realtime",
    }
    return RequestRecord.objects.create(**(empty | fields))


def exported(client: Client, address: str) -> list[dict[str, str]]:
    """Return the rows of a file."""
    answer = client.get(address)
    assert isinstance(answer, StreamingHttpResponse)
    assert answer["content-type"] == "text/csv; charset=utf-8"
    return list(csv.DictReader(StringIO(answer.getvalue().decode(), newline="")))


@pytest.mark.parametrize("path", EXPORTS)
def test_every_long_list_can_be_exported(admin_client: Client, path: str) -> None:
    page = admin_client.get(f"/admin/{path}/").content.decode()
    assert f'href="/admin/{path}/export/' in page
    answer = admin_client.get(f"/admin/{path}/export/")
    assert answer["content-disposition"].startswith("attachment; filename=")
    assert answer.getvalue().decode().strip()


@pytest.mark.parametrize("count", [1, 3, 4, 7])
def test_rows_come_chunk_by_chunk_each_once_and_in_the_list_s_order(
    admin_client: Client,
    monkeypatch: pytest.MonkeyPatch,
    django_assert_max_num_queries: DjangoAssertNumQueries,
    count: int,
) -> None:
    """Two requests each have the same moment: the chunks part them by their ids."""
    monkeypatch.setattr(export, "ROWS_AT_ONCE", 3)
    made = [str(make_request(number).pk) for number in range(count)]
    with django_assert_max_num_queries(10) as queries:
        rows = exported(admin_client, f"{REQUESTS}export/")
    assert [row["id"] for row in rows] == made[::-1]
    asked = [query["sql"] for query in queries.captured_queries]
    assert not [sql for sql in asked if "OFFSET" in sql]


def test_a_file_has_what_the_list_is_narrowed_to_and_the_button_says_so(
    admin_client: Client,
) -> None:
    record, _ = make_request(1, status="failed", team_id=8), make_request(2)
    narrowed = "?status__exact=failed&team=8"
    page = admin_client.get(f"{REQUESTS}{narrowed}").content.decode()
    assert f"{REQUESTS}export/?status__exact=failed&amp;team=8" in page
    rows = exported(admin_client, f"{REQUESTS}export/{narrowed}")
    assert [row["id"] for row in rows] == [str(record.pk)]
    assert admin_client.get(f"{REQUESTS}export/?client=x").status_code == 400


def test_one_batch_s_rows_come_as_they_were_sent(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "ROWS_AT_ONCE", 2)
    batch = make_batch()
    for line in (3, 1, 5, 2, 4):
        make_row(batch, line)
    rows = exported(admin_client, f"/admin/jobs/work/export/?batch={batch.pk}")
    assert [row["line"] for row in rows] == ["1", "2", "3", "4", "5"]


def test_amounts_are_micro_units_and_moments_have_their_zone(admin_client: Client) -> None:
    team = Team.objects.create(name="blue")
    ledger.top_up(team.pk, 1_500_000, description="first")
    (row,) = exported(admin_client, f"/admin/jobs/ledgerentry/export/?team={team.pk}")
    assert (row["amount_micros"], row["account_id"], row["kind"]) == (
        "1500000",
        str(team.pk),
        "topup",
    )
    assert row["created_at"].endswith("Z")


def test_no_cell_is_a_formula(admin_client: Client) -> None:
    make_file(filename="=HYPERLINK(1)")
    (row,) = exported(admin_client, "/admin/jobs/storedfile/export/")
    assert row["filename"] == "'=HYPERLINK(1)"


def test_exporting_takes_the_permission_to_see(client: Client) -> None:
    user = User.objects.create_user("op", is_staff=True)
    client.force_login(user)
    assert client.get(f"{REQUESTS}export/").status_code == 403
    user.user_permissions.add(Permission.objects.get(codename="view_requestrecord"))
    assert client.get(f"{REQUESTS}export/").status_code == 200
