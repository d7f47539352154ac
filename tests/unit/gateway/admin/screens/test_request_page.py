"""The page about one request, and the way to it."""

from __future__ import annotations

import json
from datetime import timedelta
from html import unescape

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from gateway.models import Team
from inference.request import TextPart, ToolCallPart
from jobs import ledger
from tests.unit.gateway.admin.screens.rows import (
    NOON,
    bill,
    keep,
    make_batch,
    make_record,
    make_row,
    new_id,
    operator,
    set_price,
)

pytestmark = pytest.mark.django_db

FIND = "/admin/requests/"


def page_of(client: Client, request_id: object) -> str:
    response = client.get(f"{FIND}{request_id}/")
    assert response.status_code == 200
    return unescape(response.content.decode())


@pytest.mark.parametrize("prefix", ["", "msg_", "req_", "resp_", "chatcmpl-", "batch_req_", " "])
def test_an_id_leads_to_its_request_under_any_name(admin_client: Client, prefix: str) -> None:
    record = make_record()
    response = admin_client.get(FIND, {"q": f"{prefix}{record.pk}"})
    assert response.headers["location"] == f"{FIND}{record.pk}/"


def test_a_batch_s_id_leads_to_its_page(admin_client: Client) -> None:
    batch = make_batch()
    response = admin_client.get(FIND, {"q": f"batch_{batch.pk}"})
    assert response.headers["location"] == f"/admin/batches/{batch.pk}/"


def test_an_id_that_nobody_has_is_said_to_be_so(admin_client: Client) -> None:
    unknown = f"msg_{new_id()}"
    response = admin_client.get(f"{FIND}{unknown}/", follow=True)
    page = response.content.decode()
    assert "Nothing on record has the id" in page
    assert unknown in page


def test_what_is_no_id_is_shown_as_text(admin_client: Client) -> None:
    page = admin_client.get(FIND, {"q": "<b>laptop</b>"}).content.decode()
    assert "is no id" in page
    assert "<b>laptop" not in page


def test_the_latest_failures_are_listed_without_reading_others(
    admin_client: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    failed = make_record(status="failed", ending="failed", detail="no_engine", error="none is up")
    make_record(error="this one went well")
    with django_assert_max_num_queries(8):
        page = admin_client.get(FIND).content.decode()
    assert f"{FIND}{failed.pk}/" in page
    assert "no_engine: none is up" in page
    assert "this one went well" not in page


def test_it_tells_when_each_thing_happened(admin_client: Client) -> None:
    record = make_record(
        created_at=NOON,
        taken_at=NOON + timedelta(milliseconds=250),
        first_token_at=NOON + timedelta(milliseconds=500),
        engine_ended_at=NOON + timedelta(seconds=1),
        engine_host="gpu-3",
        attempts=2,
    )
    page = page_of(admin_client, record.pk)
    for said in ("+0.250 s", "+0.500 s", "+1.000 s", "gpu-3", "Waited for a place: 0.250 s"):
        assert said in page
    assert '<rect class="op-read" x="250" y="0" width="250"' in page


def test_it_tells_what_was_used_by_which_price_and_where_the_ledger_says_so(
    admin_client: Client,
) -> None:
    record = make_record(
        lane="batch", input_tokens=1_000, cached_tokens=300, output_tokens=20, cost_micros=1_234_567
    )
    entry = bill(record, set_price())
    refund = ledger.refund(str(record.pk), 1_000)
    page = page_of(admin_client, record.pk)
    for said in ("700", "3.000000", "15.000000", "1.234567", "times 0.5 for its lane"):
        assert said in page
    for posted in (entry, refund):
        assert f"/admin/jobs/ledgerentry/{posted.pk}/change/" in page


def test_what_was_not_billed_has_no_entry(admin_client: Client) -> None:
    assert "The ledger has no entry about it" in page_of(admin_client, make_record().pk)


def test_it_tells_why_a_request_failed(admin_client: Client) -> None:
    record = make_record(
        status="failed", ending="failed", detail="no_engine", error="no engine of tiny is up"
    )
    page = page_of(admin_client, record.pk)
    assert "no engine of tiny is up" in page
    assert "No engine of this model was ready." in page
    assert '"type": "api_error"' in page


def test_an_upstream_that_is_full_is_not_put_down_to_our_queue(admin_client: Client) -> None:
    told = {"status": "failed", "ending": "failed", "detail": "overloaded"}
    upstream = page_of(
        admin_client,
        make_record(**told, engine_id=new_id(), error="the upstream answered 529: full").pk,
    )
    assert "nothing here was. Try again later, or set a fallback model." in upstream
    assert "max_waiting" not in upstream
    assert "max_waiting" in page_of(admin_client, make_record(**told).pk)


def test_it_tells_which_model_was_asked_for_where_another_answered(admin_client: Client) -> None:
    record = make_record(model="near", requested_model="far")
    assert "<dt>Asked for</dt><dd>far</dd>" in page_of(admin_client, record.pk)
    assert "<dt>Asked for</dt>" not in page_of(admin_client, make_record().pk)


def test_prompt_and_answer_are_text_whatever_they_say(admin_client: Client) -> None:
    record = make_record()
    body = {"model": "tiny", "messages": [{"role": "user", "content": "<script>x()</script>"}]}
    keep(
        record,
        json.dumps(body).encode(),
        TextPart("<img src=x onerror=y()>"),
        ToolCallPart(id="1", name="weather", arguments="{}"),
    )
    raw = admin_client.get(f"{FIND}{record.pk}/").content.decode()
    assert "<script>x()" not in raw
    assert "<img src=x" not in raw
    assert "&lt;script&gt;x()&lt;/script&gt;" in raw
    page = unescape(raw)
    assert "Call of weather" in page
    assert "tool calls, before the end" in page


def test_the_bytes_of_images_are_left_out_and_the_request_can_be_had_as_it_was(
    admin_client: Client,
) -> None:
    record = make_record()
    source = {"type": "base64", "media_type": "image/png", "data": "A" * 5_000}
    body = {"messages": [{"role": "user", "content": [{"type": "image", "source": source}]}]}
    sent = json.dumps(body).encode()
    keep(record, sent)
    assert "image/png, 5,000 characters" in page_of(admin_client, record.pk)
    response = admin_client.get(f"{FIND}{record.pk}/body.json")
    assert response.content == sent
    assert response.headers["content-type"] == "application/json"
    assert "attachment" in response.headers["content-disposition"]


def test_the_command_that_repeats_it_has_no_key(admin_client: Client) -> None:
    record = make_record()
    keep(record, b'{"model":"tiny","messages":[]}')
    page = page_of(admin_client, record.pk)
    assert "curl -N http://testserver/v1/messages" in page
    assert "x-api-key: $TANDEM_API_KEY" in page
    assert '{"model":"tiny","messages":[]}' in page


def test_what_was_said_takes_a_permission_of_its_own() -> None:
    record = make_record()
    keep(record, b'{"input":"a secret"}', TextPart("an answer"))
    viewer = operator("view_requestrecord")
    page = page_of(viewer, record.pk)
    assert "a secret" not in page
    assert "an answer" not in page
    assert viewer.get(f"{FIND}{record.pk}/body.json").status_code == 403
    assert "Ledger entry" not in page


def test_nobody_sees_the_page_without_permission(client: Client) -> None:
    record = make_record()
    address = f"{FIND}{record.pk}/"
    assert operator("view_model").get(address).status_code == 403
    assert client.get(address).headers["location"].startswith("/admin/login/")


def test_of_a_team_that_keeps_nothing_nothing_is_shown(admin_client: Client) -> None:
    team = Team.objects.create(name="quiet", zero_data_retention=True)
    record = make_record(team_id=team.pk)
    keep(record, b'{"input":"a secret"}')
    page = page_of(admin_client, record.pk)
    assert "a secret" not in page
    assert "zero data retention" in page
    assert admin_client.get(f"{FIND}{record.pk}/body.json").status_code == 404


def test_what_is_over_its_time_is_not_shown(admin_client: Client) -> None:
    record = make_record(created_at=timezone.now() - timedelta(days=31))
    keep(record, b'{"input":"a secret"}')
    assert "a secret" not in page_of(admin_client, record.pk)


def test_a_request_that_has_not_ended_keeps_its_page_up(admin_client: Client) -> None:
    running = make_record(status="running", ending="", detail="", settled_at=None)
    assert "data-running" in page_of(admin_client, running.pk)
    assert "data-running" not in page_of(admin_client, make_record().pk)


def test_a_row_of_a_batch_is_told_before_the_trail_knows_it(admin_client: Client) -> None:
    batch = make_batch()
    row = make_row(batch, 3, attempts=1, deaths=1)
    page = page_of(admin_client, row.pk)
    for said in ("pending", "row-3", "Engines that died under it", f"/admin/batches/{batch.pk}/"):
        assert said in page


def test_a_page_takes_few_queries(
    admin_client: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    record = make_record()
    keep(record, b'{"input":"Hello"}', TextPart("Hi"))
    bill(record, set_price())
    with django_assert_max_num_queries(14):
        page_of(admin_client, record.pk)
