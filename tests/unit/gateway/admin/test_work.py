"""Rows that are put back into the queue."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.utils import timezone

from gateway.models import Team
from jobs.models import Work
from tests.unit.gateway.admin.operators import sign_in
from tests.unit.gateway.admin.rows import make_batch, make_row

pytestmark = pytest.mark.django_db

ROWS = "/admin/jobs/work/"


def put_back(client: Client, *rows: Work, confirmed: str = "yes") -> str:
    ids = [str(row.pk) for row in rows]
    chosen = {"action": "requeue", "_selected_action": ids, "confirmed": confirmed}
    return client.post(ROWS, chosen, follow=True).content.decode()


def test_putting_back_asks_first(admin_client: Client) -> None:
    row = make_row(make_batch(), state="running", worker_id=uuid.uuid4(), attempts=1)
    for page in (
        put_back(admin_client, row, confirmed=""),
        admin_client.get(f"{ROWS}{row.pk}/requeue_this/").content.decode(),
    ):
        assert f"Put the piece of work {row.pk} back into the queue?" in page
    row.refresh_from_db()
    assert row.state == "running"


def test_work_that_has_not_ended_is_put_back_and_the_change_is_kept(admin_client: Client) -> None:
    batch = make_batch()
    running = make_row(batch, 1, state="running", worker_id=uuid.uuid4(), attempts=1)
    later = make_row(batch, 2, not_before=timezone.now() + timedelta(hours=1))
    ended = make_row(batch, 3, state="done", outcome="failed")
    assert "Put back: 2 of 3." in put_back(admin_client, running, later, ended)
    for row in (running, later):
        row.refresh_from_db()
        assert (row.state, row.not_before, row.attempts) == ("pending", None, 0)
    changes = {(change.object_id, change.get_change_message()) for change in _changes()}
    assert changes == {(str(row.pk), "Put back.") for row in (running, later)}


def _changes() -> list[LogEntry]:
    return list(LogEntry.objects.all())


def test_putting_back_takes_a_permission(client: Client) -> None:
    row = make_row(make_batch(), state="running", worker_id=uuid.uuid4(), attempts=1)
    sign_in(client)
    assert client.get(f"{ROWS}{row.pk}/requeue_this/").status_code == 403
    put_back(client, row)
    row.refresh_from_db()
    assert row.state == "running"


def test_a_row_s_page_names_its_team(admin_client: Client) -> None:
    team = Team.objects.create(name="blue")
    row = make_row(make_batch(), team_id=team.pk)
    page = admin_client.get(f"{ROWS}{row.pk}/change/").content.decode()
    assert f'<a href="/admin/gateway/team/{team.pk}/change/" class="text-link">blue</a>' in page
