"""Pages about requests and money follow indexes and stop, however many rows there are.

Nothing is timed: PostgreSQL tells which indexes it uses and how many rows it looks at.
"""

from __future__ import annotations

from functools import partial

import pytest
from django.contrib.auth.models import User
from django.test import Client

from gateway.keys import mint
from gateway.models import Team
from jobs.models import RequestRecord
from tests.many_requests import Filled, analyze, fill
from tests.pages import admin_pages, control_pages
from tests.plans import plans_of

pytestmark = pytest.mark.django_db

# The lists count a small part of the rows, as they do of a million.
ROWS = 20_000
COUNTED_AT_MOST = 1_000
# One team has half of all; four filters at once pass over some, and a year has its days.
READ_AT_MOST = ROWS / 5


@pytest.fixture(autouse=True)
def _lists_in_proportion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.reports.COUNTED_AT_MOST", COUNTED_AT_MOST)
    monkeypatch.setattr("gateway.admin.pages.COUNTED_AT_MOST", COUNTED_AT_MOST)


def filled(rows: int) -> Filled:
    made = fill(rows, Team.objects.create(name="team 1").pk)
    analyze()
    return made


def offences(client: Client, pages: dict[str, str]) -> list[str]:
    """Ask for every page, and return what is wrong with how its queries are carried out."""
    found = []
    for name, path in pages.items():
        assert client.get(path).status_code == 200, path
        for plan in plans_of(partial(client.get, path)):
            if plan.scanned_whole or plan.rows_read > READ_AT_MOST:
                found.append(f"{name}: {plan}")
    return found


def of_team(team: str) -> Client:
    return Client(headers={"x-api-key": mint("plans", team)})


def test_no_page_reads_a_table_whole() -> None:
    """Neither for a team that has half of the requests, nor for one that left half a year ago."""
    made = filled(ROWS)
    control = control_pages(made)
    admin = Client()
    admin.force_login(User.objects.create_superuser("admin"))
    assert offences(of_team("team 1"), control) == []
    assert RequestRecord.objects.filter(team_id=made.departed_team).count() > ROWS / 20
    of_others = {name for name, path in control.items() if str(made.request_id) in path}
    own = {name: path for name, path in control.items() if name not in of_others}
    assert offences(of_team("team 2"), own) == []
    assert offences(admin, admin_pages(made)) == []


def test_a_query_that_reads_a_table_whole_is_seen() -> None:
    filled(2_000)
    rows = RequestRecord.objects.values("pk")
    (whole,) = plans_of(lambda: list(rows.filter(address="10.0.0.1").order_by()))
    assert whole.scanned_whole == {"jobs_requestrecord"}
    assert whole.rows_read == 2_000
    (walk,) = plans_of(lambda: list(rows.order_by("-created_at", "-id")[:5]))
    assert not walk.scanned_whole
    assert walk.indexes == {"request_newest"}
    assert walk.rows_read == 5
