"""What lists are narrowed by."""

from __future__ import annotations

import time
import uuid
from datetime import UTC, datetime, timedelta

import pytest
import uuid_utils
from django.test import Client
from django.utils import timezone

from gateway.admin.filters import moment_text, uuid7_bounds
from gateway.keys import find_key, mint
from gateway.models import Team
from jobs import ledger
from jobs.models import RequestRecord
from tests.unit.gateway.admin.rows import NOON, make_batch, make_file, make_row, new_id

pytestmark = pytest.mark.django_db

REQUESTS = "/admin/jobs/requestrecord/"


def make_request(**fields: object) -> RequestRecord:
    empty = {"id": new_id(), "created_at": NOON, "team_id": 7, "model": "tiny"}
    return RequestRecord.objects.create(**(empty | fields))


def shown(client: Client, address: str) -> list[str]:
    page = client.get(address)
    assert page.status_code == 200
    return [str(row.pk) for row in page.context["cl"].result_list]


@pytest.mark.parametrize(
    ("address", "hours"),
    [
        ("since=2026-08-07T13:00", [2, 1]),
        ("until=2026-08-07T13:00", [0]),
        ("since=2026-08-07T12:30&until=2026-08-07T13:30", [1]),
        ("since=&until=", [2, 1, 0]),
        ("since=yesterday", []),
        ("since=0001-01-01T00:00&until=9999-12-31T23:59", [2, 1, 0]),
    ],
)
def test_a_list_is_narrowed_to_what_was_between_two_moments(
    admin_client: Client, address: str, hours: list[int]
) -> None:
    made = [str(make_request(created_at=NOON + timedelta(hours=hour)).pk) for hour in range(3)]
    assert shown(admin_client, f"{REQUESTS}?{address}") == [made[hour] for hour in hours]


@pytest.mark.parametrize("path", ["storedfile", "ledgerentry"])
@pytest.mark.parametrize(
    "address",
    [
        "since=0001-01-01T00:00",
        "until=0001-01-01T00:00",
        "since=9999-12-31T23:59",
        "until=9999-12-31T23:59",
    ],
)
def test_no_moment_is_too_far_away_to_be_reckoned_with(
    admin_client: Client, path: str, address: str
) -> None:
    assert admin_client.get(f"/admin/jobs/{path}/?{address}").status_code == 200


def test_what_is_listed_by_ids_is_found_by_its_moment(admin_client: Client) -> None:
    file = make_file()
    before = moment_text(timezone.now() - timedelta(minutes=5))
    after = moment_text(timezone.now() + timedelta(minutes=5))
    files = "/admin/jobs/storedfile/"
    assert shown(admin_client, f"{files}?since={before}&until={after}") == [str(file.pk)]
    assert shown(admin_client, f"{files}?since={after}") == []
    assert shown(admin_client, f"{files}?until={before}") == []


def test_ids_are_bounded_by_the_moments_that_they_hold() -> None:
    now = datetime.fromtimestamp(time.time(), UTC)
    one_id = uuid.UUID(str(uuid_utils.uuid7()))
    bounds = uuid7_bounds(now, now)
    assert bounds["pk__gte"] < one_id < bounds["pk__lt"]
    assert one_id < uuid7_bounds(now + timedelta(minutes=2), None)["pk__gte"]
    assert one_id > uuid7_bounds(None, now - timedelta(minutes=2))["pk__lt"]


def test_the_ledger_is_narrowed_by_when_its_entries_were_made(admin_client: Client) -> None:
    team = Team.objects.create(name="blue")
    entry = ledger.top_up(team.pk, 5, description="today")
    before = moment_text(timezone.now() - timedelta(minutes=5))
    after = moment_text(timezone.now() + timedelta(minutes=5))
    entries = "/admin/jobs/ledgerentry/"
    for narrowed in (f"since={before}&until={after}", f"since={before}&team={team.pk}"):
        assert shown(admin_client, f"{entries}?{narrowed}") == [str(entry.pk)]
    for narrowed in (f"since={after}", f"until={before}", f"until={before}&team={team.pk}"):
        assert shown(admin_client, f"{entries}?{narrowed}") == []


def test_requests_of_one_key_are_found_along_its_team_s_index(admin_client: Client) -> None:
    mint("laptop", "blue")
    key = find_key("laptop")
    mine = make_request(key_id=key.pk, team_id=key.team_id)
    make_request(key_id=key.pk, team_id=key.team_id + 1)
    make_request(key_id=uuid.uuid4(), team_id=key.team_id)
    page = admin_client.get(f"{REQUESTS}?key={key.pk}")
    assert [row.pk for row in page.context["cl"].result_list] == [mine.pk]
    ordering = str(page.context["cl"].queryset.query)
    assert "NULLS LAST" in ordering
    for unknown in (uuid.uuid4(), "nonsense"):
        assert shown(admin_client, f"{REQUESTS}?key={unknown}") == []


def test_requests_of_one_batch_are_found(admin_client: Client) -> None:
    batch = make_batch()
    row = make_row(batch)
    record = make_request(id=row.pk, batch_id=batch.pk)
    make_request()
    assert shown(admin_client, f"{REQUESTS}?batch=batch_{batch.pk}") == [str(record.pk)]
    page = admin_client.get(f"/admin/jobs/batch/{batch.pk}/change/").content.decode()
    assert f'href="{REQUESTS}?batch={batch.pk}"' in page
    page = admin_client.get(f"{REQUESTS}{record.pk}/change/").content.decode()
    assert f'href="/admin/jobs/batch/{batch.pk}/change/"' in page
    assert f'href="/admin/jobs/work/{row.pk}/change/"' in page
