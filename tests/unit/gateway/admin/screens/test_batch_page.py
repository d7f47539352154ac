"""The page about one batch, and what can be done there."""

from __future__ import annotations

from html import unescape
from typing import Any, cast

import pytest
from django.contrib.admin.models import LogEntry
from django.http import StreamingHttpResponse
from django.test import Client

from gateway.models import Team
from inference.models import Model
from tests.unit.gateway.admin.screens.rows import NOON, make_batch, make_row, operator

pytestmark = pytest.mark.django_db

BATCHES = "/admin/batches/"
SOME_ID = "01890a5d-ac96-774b-bcce-b302099a8057"


def page_of(client: Client, address: object) -> str:
    response = client.get(f"{BATCHES}{address}")
    assert response.status_code == 200
    return unescape(response.content.decode())


def test_the_form_offers_teams_and_endpoints(admin_client: Client) -> None:
    Team.objects.create(name="blue")
    page = page_of(admin_client, "new/")
    assert "blue</option>" in page
    for endpoint in ("/v1/chat/completions", "/v1/messages", "/v1/responses"):
        assert f"<option>{endpoint}</option>" in page
    assert '"purpose": "BATCH_UPLOAD"' in page


def test_sending_one_takes_the_permission_to_make_keys() -> None:
    assert operator("view_batch").get(f"{BATCHES}new/").status_code == 403
    assert operator("add_apikey").get(f"{BATCHES}new/").status_code == 200


@pytest.mark.parametrize("prefix", ["", "batch_", "msgbatch_"])
def test_a_batch_is_found_under_any_name(admin_client: Client, prefix: str) -> None:
    batch = make_batch(total=10, completed=4, cost_micros=1_500_000)
    page = page_of(admin_client, f"{prefix}{batch.pk}/")
    assert "In progress" in page
    assert "1.500000" in page
    assert 'max="10" value="4"' in page
    assert f"batch_{batch.pk}" in page


@pytest.mark.parametrize("name", ["nonsense", SOME_ID])
def test_one_that_there_is_not_is_not_found(admin_client: Client, name: str) -> None:
    for page in ("", "cancel/", "results.jsonl", "errors.jsonl"):
        assert admin_client.get(f"{BATCHES}{name}/{page}").status_code == 404


def test_what_is_wrong_with_its_file_is_told_line_by_line(admin_client: Client) -> None:
    errors = [
        {"code": "invalid_json_line", "message": "not valid JSON: <b>", "line": 3},
        {"code": "empty_file", "message": "The file has no requests."},
    ]
    batch = make_batch(status="failed", errors=errors)
    raw = admin_client.get(f"{BATCHES}{batch.pk}/").content.decode()
    assert '<td class="op-number">3</td>' in raw
    assert "not valid JSON: &lt;b&gt;" in raw
    assert "The file has no requests." in raw


def test_rows_without_an_answer_are_listed_and_paged_through(admin_client: Client) -> None:
    batch = make_batch(total=62, failed=60, completed=2)
    for line in range(1, 61):
        make_row(
            batch, line, outcome="failed", error_code="invalid_request", error_message="temperature"
        )
    make_row(batch, 61, outcome="completed")
    make_row(batch, 62)
    page = page_of(admin_client, f"{batch.pk}/")
    assert "row-50<" in page
    assert "row-51<" not in page
    assert "invalid_request: temperature" in page
    assert "?after=50" in page
    page = page_of(admin_client, f"{batch.pk}/?after=50")
    assert "row-51<" in page
    assert "row-60<" in page
    assert "row-61<" not in page
    assert "Next page" not in page


@pytest.mark.parametrize("after", ["-1", "x", "9" * 30, "٣"])
def test_a_page_that_there_cannot_be_is_the_first(admin_client: Client, after: str) -> None:
    batch = make_batch(failed=1)
    make_row(batch, 1, outcome="failed")
    assert "row-1<" in page_of(admin_client, f"{batch.pk}/?after={after}")


def test_cancelling_says_what_became_of_the_rows(admin_client: Client) -> None:
    batch = make_batch(total=5, completed=1)
    make_row(batch, 1, outcome="completed")
    for line in (2, 3):
        make_row(batch, line, state="running")
    for line in (4, 5):
        make_row(batch, line)
    page = admin_client.post(f"{BATCHES}{batch.pk}/cancel/", follow=True).content.decode()
    assert "Cancelled: the 2 rows that run may end, no others begin." in page


def test_one_whose_file_is_still_read_has_begun_none(admin_client: Client) -> None:
    batch = make_batch(status="validating")
    page = admin_client.post(f"{BATCHES}{batch.pk}/cancel/", follow=True).content.decode()
    assert "Cancelled: none of its rows had begun." in page


@pytest.mark.parametrize(
    ("completed", "cancelled", "failed", "looks_well"),
    [(4, 0, 0, True), (2, 1, 1, True), (1, 3, 0, False), (0, 4, 0, False), (0, 0, 0, True)],
)
def test_a_bar_of_rows_without_an_answer_does_not_look_like_success(
    admin_client: Client, completed: int, cancelled: int, failed: int, looks_well: bool
) -> None:
    batch = make_batch(total=4, completed=completed, cancelled=cancelled, failed=failed)
    assert ("op-without" not in page_of(admin_client, f"{batch.pk}/")) == looks_well


def test_rows_that_never_ran_say_why(admin_client: Client) -> None:
    batch = make_batch(status="cancelled", total=2, cancelled=1, expired=1)
    make_row(batch, 1, outcome="cancelled")
    make_row(batch, 2, outcome="expired")
    page = page_of(admin_client, f"{batch.pk}/")
    assert "<td>cancelled</td>\n    <td>cancelled</td>" in page
    assert "<td>expired</td>\n    <td>expired</td>" in page


def test_one_that_stands_still_says_why(admin_client: Client) -> None:
    Model.objects.create(id="tiny", context_tokens=1)
    batch = make_batch(total=1)
    make_row(batch, 1)
    page = page_of(admin_client, f"{batch.pk}/")
    assert "Waiting:</strong> no engine serves tiny." in page
    assert "/admin/engines/#unserved" in page
    assert "/admin/inference/model/tiny/change/" in page
    seen = operator("view_batch").get(f"{BATCHES}{batch.pk}/").content.decode()
    assert "no engine serves tiny." in seen
    assert "/admin/engines/#unserved" not in seen


def test_cancelling_asks_first(admin_client: Client) -> None:
    batch = make_batch(total=1)
    make_row(batch, 1)
    assert "cannot be undone" in page_of(admin_client, f"{batch.pk}/cancel/")
    batch.refresh_from_db()
    assert batch.cancelling_at is None
    response = admin_client.post(f"{BATCHES}{batch.pk}/cancel/", follow=True)
    said = unescape(response.content.decode())
    assert "Cancelled: a row is cancelled, and none was running." in said
    batch.refresh_from_db()
    assert batch.cancelling_at is not None
    assert LogEntry.objects.get(object_id=str(batch.pk)).change_message == "Cancelled."


@pytest.mark.parametrize(
    "fields",
    [
        {"status": "completed"},
        {"status": "cancelling", "cancelling_at": NOON},
        {"status": "cancelled", "cancelling_at": NOON},
    ],
)
def test_cancelling_what_is_over_or_cancelled_says_that_nothing_has_changed(
    admin_client: Client, fields: dict[str, Any]
) -> None:
    batch = make_batch(**fields)
    response = admin_client.post(f"{BATCHES}{batch.pk}/cancel/", follow=True)
    assert "nothing has changed" in response.content.decode()
    assert not LogEntry.objects.exists()


def test_cancelling_takes_its_permission() -> None:
    batch = make_batch()
    viewer = operator("view_batch")
    assert "Cancel this batch…" not in page_of(viewer, f"{batch.pk}/")
    assert viewer.post(f"{BATCHES}{batch.pk}/cancel/").status_code == 403
    assert "Cancel this batch…" in page_of(operator("view_batch", "change_batch"), f"{batch.pk}/")


def test_results_take_the_permission_to_see_what_was_said() -> None:
    batch = make_batch()
    viewer = operator("view_batch")
    assert "results.jsonl" not in page_of(viewer, f"{batch.pk}/")
    assert viewer.get(f"{BATCHES}{batch.pk}/results.jsonl").status_code == 403


def test_results_of_a_team_that_keeps_nothing_are_nobody_s(admin_client: Client) -> None:
    team = Team.objects.create(name="quiet", zero_data_retention=True)
    batch = make_batch(team_id=team.pk)
    assert "results.jsonl" not in page_of(admin_client, f"{batch.pk}/")
    assert admin_client.get(f"{BATCHES}{batch.pk}/results.jsonl").status_code == 403


def test_results_are_a_file(admin_client: Client) -> None:
    batch = make_batch()
    make_row(batch, 1, outcome="failed", error_code="invalid_request")
    response = cast("StreamingHttpResponse", admin_client.get(f"{BATCHES}{batch.pk}/errors.jsonl"))
    assert response.headers["content-type"] == "application/x-ndjson"
    assert f"batch_{batch.pk}_errors.jsonl" in response.headers["content-disposition"]
    assert b"row-1" in response.getvalue()
