"""Batches, their rows, files and stored responses in the admin."""

from __future__ import annotations

from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from pytest_django import DjangoAssertNumQueries, DjangoCaptureOnCommitCallbacks

from gateway.models import Team
from jobs.models import Batch, RequestRecord
from tests.unit.gateway.admin.rows import (
    BATCHES,
    NOON,
    cancel,
    make_batch,
    make_file,
    make_response,
    make_row,
    make_stream,
)

pytestmark = pytest.mark.django_db

ROWS = "/admin/jobs/work/"
FILES = "/admin/jobs/storedfile/"
RESPONSES = "/admin/jobs/storedresponse/"
STREAMS = "/admin/jobs/responsestream/"
# What an engine is given, and what it answered, may each be megabytes.
LARGE = ('"request"', '"answer"', '"echo"', '"body"', '"items"', '"events"')

MAKERS = [
    (BATCHES, make_batch),
    (ROWS, lambda **fields: make_row(None, **fields)),
    (FILES, make_file),
    (RESPONSES, make_response),
    (STREAMS, make_stream),
]


def shown(client: Client, address: str) -> list[str]:
    """Return the ids of what a list shows, in its order."""
    page = client.get(address)
    assert page.status_code == 200
    return [str(row.pk) for row in page.context["cl"].result_list]


@pytest.mark.parametrize(("path", "make"), MAKERS)
def test_a_list_takes_the_same_few_queries_however_long_it_is(
    admin_client: Client,
    path: str,
    make: Any,
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    for _ in range(20):
        make()
    with django_assert_max_num_queries(7) as queries:
        assert len(shown(admin_client, path)) == 20
    asked = [query["sql"] for query in queries.captured_queries]
    assert not [sql for sql in asked if sql.startswith("SELECT") and _reads_large(sql)]


def _reads_large(sql: str) -> bool:
    return any(f".{column}" in sql for column in LARGE)


@pytest.mark.parametrize(("path", "make"), MAKERS)
def test_each_is_shown_in_whole_without_what_is_large(
    admin_client: Client,
    path: str,
    make: Any,
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    row = make()
    with django_assert_max_num_queries(10) as queries:
        page = admin_client.get(f"{path}{row.pk}/change/")
    assert page.status_code == 200
    assert str(row.pk) in page.content.decode()
    asked = [query["sql"] for query in queries.captured_queries]
    assert not [sql for sql in asked if _reads_large(sql)]


@pytest.mark.parametrize(("path", "make"), MAKERS)
@pytest.mark.parametrize("page", ["add/", "{}/delete/"])
def test_nobody_adds_or_deletes_one_by_hand(
    admin_client: Client, path: str, make: Any, page: str
) -> None:
    row = make()
    response = admin_client.post(f"{path}{page.format(row.pk)}", {"post": "yes"})
    assert response.status_code == 403
    assert type(row).objects.count() == 1


@pytest.mark.parametrize(("path", "make"), MAKERS)
def test_lists_begin_with_the_newest(admin_client: Client, path: str, make: Any) -> None:
    rows = [make() for _ in range(3)]
    assert shown(admin_client, path) == [str(row.pk) for row in reversed(rows)]


@pytest.mark.parametrize(
    ("path", "make", "prefix"),
    [
        (BATCHES, make_batch, ""),
        (BATCHES, make_batch, "batch_"),
        (BATCHES, make_batch, "msgbatch_"),
        (ROWS, lambda: make_row(None), "req_"),
        (ROWS, lambda: make_row(None), "batch_req_"),
        (ROWS, lambda: make_row(None), "chatcmpl-"),
        (FILES, make_file, "file-"),
        (RESPONSES, make_response, "resp_"),
        (STREAMS, make_stream, ""),
    ],
)
def test_each_is_found_by_its_id_as_the_apis_write_it(
    admin_client: Client, path: str, make: Any, prefix: str
) -> None:
    row, _ = make(), make()
    assert shown(admin_client, f"{path}?q={prefix}{row.pk}") == [str(row.pk)]
    assert shown(admin_client, f"{path}?q=rows.jsonl") == []


@pytest.mark.parametrize(("path", "make"), [maker for maker in MAKERS if maker[0] != ROWS])
def test_lists_are_narrowed_by_team(admin_client: Client, path: str, make: Any) -> None:
    team = Team.objects.create(name="red")
    row, _ = make(team_id=team.pk), make(team_id=team.pk + 1)
    assert shown(admin_client, f"{path}?team={team.pk}") == [str(row.pk)]


def test_batches_are_narrowed_by_status_and_form(admin_client: Client) -> None:
    batch, _ = make_batch(status="failed", form="anthropic"), make_batch()
    for address in ("status__exact=failed", "form__exact=anthropic"):
        assert shown(admin_client, f"{BATCHES}?{address}") == [str(batch.pk)]


@pytest.mark.parametrize(
    "address",
    [
        f"{BATCHES}?metadata__icontains=x",
        f"{ROWS}?custom_id=x",
        f"{ROWS}?team_id=7",
        f"{FILES}?filename__contains=x",
        f"{RESPONSES}?error_code=x",
        f"{BATCHES}?status__exact=%00",
    ],
)
def test_no_other_look_up_is_taken(admin_client: Client, address: str) -> None:
    """It might read every row, or be one that the database refuses."""
    assert admin_client.get(address).status_code == 400


def test_a_batch_tells_how_far_it_is_and_what_it_cost(admin_client: Client) -> None:
    errors = [{"code": "url_mismatch", "message": "another path", "line": 2}]
    batch = make_batch(
        total=1_500,
        completed=1_000,
        failed=100,
        cancelled=20,
        expired=5,
        cost_micros=1_234_567,
        input_file=make_file(),
        errors=errors,
    )
    for address in (BATCHES, f"{BATCHES}{batch.pk}/change/"):
        page = unescape(admin_client.get(address).content.decode())
        assert "1,125 of 1,500 (75%)" in page
        assert "1.234567" in page
    assert "url_mismatch" in page
    assert f"{FILES}{batch.input_file_id}/change/" in page


def test_a_batch_leads_to_its_rows_in_their_order(admin_client: Client) -> None:
    batch, other = make_batch(), make_batch()
    late, early = make_row(batch, 2), make_row(batch, 1)
    failed = make_row(batch, 3, state="done", outcome="failed", error_code="timeout")
    make_row(other, 1, state="done", outcome="failed")
    page = unescape(admin_client.get(f"{BATCHES}{batch.pk}/change/").content.decode())
    whole, only_failed = f"{ROWS}?batch={batch.pk}", f"{ROWS}?batch={batch.pk}&outcome=failed"
    assert f'href="{whole}"' in page
    assert f'href="{only_failed}"' in page
    assert shown(admin_client, whole) == [str(row.pk) for row in (early, late, failed)]
    assert shown(admin_client, only_failed) == [str(failed.pk)]


def test_rows_are_narrowed_by_a_batch_under_any_name_and_by_no_outcome_of_all(
    admin_client: Client,
) -> None:
    batch = make_batch()
    row, other = make_row(batch), make_row(None)
    assert shown(admin_client, f"{ROWS}?batch=batch_{batch.pk}") == [str(row.pk)]
    assert shown(admin_client, f"{ROWS}?batch=nonsense") == []
    assert shown(admin_client, f"{ROWS}?outcome=failed") == [str(other.pk), str(row.pk)]
    assert 'name="outcome"' not in admin_client.get(ROWS).content.decode()
    assert 'name="outcome"' in admin_client.get(f"{ROWS}?batch={batch.pk}").content.decode()


@pytest.mark.parametrize(
    ("path", "make"), [(ROWS, lambda: make_row(None)), (RESPONSES, make_response)]
)
def test_each_leads_to_its_request_once_that_is_in_the_audit_trail(
    admin_client: Client, path: str, make: Any
) -> None:
    row = make()
    assert "not in the audit trail" in admin_client.get(f"{path}{row.pk}/change/").content.decode()
    RequestRecord.objects.create(
        id=row.pk,
        created_at=NOON,
        team_id=row.team_id,
        key_id=row.key_id,
        model=row.model,
        lane=row.lane,
        dialect="chat",
    )
    page = admin_client.get(f"{path}{row.pk}/change/").content.decode()
    assert f'href="/admin/jobs/requestrecord/{row.pk}/change/"' in page


def test_a_batch_in_the_list_leads_to_where_it_is_watched_and_cancelled(
    admin_client: Client,
) -> None:
    batch = make_batch(total=4, completed=1, failed=2)
    page = admin_client.get(BATCHES).content.decode()
    assert f'href="/admin/batches/{batch.pk}/"' in page
    assert "3 of 4 (75%), 2 failed" in page


def test_the_list_has_the_deadline_of_batches_that_are_not_over(admin_client: Client) -> None:
    deadline = NOON + timedelta(days=1)
    make_batch(expires_at=deadline)
    assert f"{deadline:%Y-%m-%d %H:%M}" in admin_client.get(BATCHES).content.decode()
    Batch.objects.update(status="completed", ended_at=NOON)
    assert f"{deadline:%Y-%m-%d %H:%M}" not in admin_client.get(BATCHES).content.decode()


def test_responses_are_narrowed_to_those_that_have_not_ended(admin_client: Client) -> None:
    response, _ = make_response(status="queued"), make_response(status="completed")
    assert shown(admin_client, f"{RESPONSES}?status=queued") == [str(response.pk)]


def test_a_file_s_digest_is_shown_in_hexadecimal(admin_client: Client) -> None:
    file = make_file()
    page = admin_client.get(f"{FILES}{file.pk}/change/").content.decode()
    assert bytes(range(32)).hex() in page


@pytest.mark.parametrize(("path", "make"), [(BATCHES, make_batch), (RESPONSES, make_response)])
def test_cancelling_asks_first(admin_client: Client, path: str, make: Any) -> None:
    row = make()
    for page in (
        cancel(admin_client, path, row, confirmed=""),
        admin_client.get(f"{path}{row.pk}/cancel_this/").content.decode(),
    ):
        assert "This cannot be undone" in page
        assert str(row.pk) in page
    was = row.status
    row.refresh_from_db()
    assert row.status == was


def test_batches_are_cancelled_and_those_that_are_over_stay_as_they_are(
    admin_client: Client, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    batch, over = make_batch(total=2), make_batch(status="completed", ended_at=NOON)
    row, running = make_row(batch, 1), make_row(batch, 2, state="running")
    with django_capture_on_commit_callbacks():
        assert "Cancelled: 1 of 2." in cancel(admin_client, BATCHES, batch, over)
    for each in (batch, over, row, running):
        each.refresh_from_db()
    assert (batch.status, over.status) == ("cancelling", "completed")
    assert (row.outcome, running.state) == ("cancelled", "running")
    assert "Cancelled: 0 of 1." in cancel(admin_client, BATCHES, over)


def test_responses_are_cancelled(
    admin_client: Client, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    response = make_response()
    make_row(None, id=response.pk, lane="background")
    with django_capture_on_commit_callbacks():
        assert f"Cancelled: {response.pk}." in cancel(admin_client, RESPONSES, response)
    response.refresh_from_db()
    assert response.status == "cancelled"


@pytest.mark.parametrize(
    ("path", "make", "model"),
    [(BATCHES, make_batch, "batch"), (RESPONSES, make_response, "storedresponse")],
)
def test_cancelling_takes_a_permission(client: Client, path: str, make: Any, model: str) -> None:
    row = make()
    viewer = User.objects.create_user("viewer", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename=f"view_{model}"))
    client.force_login(viewer)
    assert str(row.pk) in client.get(path).content.decode()
    cancel(client, path, row)
    row.refresh_from_db()
    assert row.status in ("in_progress", "queued")
