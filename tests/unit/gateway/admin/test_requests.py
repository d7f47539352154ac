"""The audit trail in the admin."""

from __future__ import annotations

import json
import re
import uuid
import zlib
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from gateway.admin.transcript import without_images
from gateway.models import Team
from inference.request import TextPart
from jobs import ledger
from jobs.models import AuditSeal, Price, RequestBody, RequestRecord
from tests.unit.gateway.admin.screens.rows import bill

pytestmark = pytest.mark.django_db

REQUESTS = "/admin/jobs/requestrecord/"
ENTRIES = "/admin/jobs/ledgerentry/"
NOON = datetime(2026, 8, 7, 12, tzinfo=UTC)


def make_record(**fields: Any) -> RequestRecord:
    empty: dict[str, Any] = {
        "id": uuid.uuid4(),
        "created_at": NOON,
        "team_id": 7,
        "team_name": "blue",
        "key_id": uuid.uuid4(),
        "key_name": "laptop",
        "model": "tiny",
        "lane": "realtime",
        "dialect": "anthropic",
        "status": "completed",
        "ending": "finished",
        "detail": "end",
    }
    return RequestRecord.objects.create(**(empty | fields))


def shown(client: Client, address: str) -> list[str]:
    """Return the ids of the requests that a list shows."""
    page = client.get(f"{REQUESTS}{address}").content.decode()
    return [str(pk) for pk in RequestRecord.objects.values_list("pk", flat=True) if str(pk) in page]


def test_the_list_takes_the_same_few_queries_however_many_requests_there_are(
    admin_client: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(20):
        make_record(team_name=f"team {number}", cost_micros=number)
    with django_assert_max_num_queries(6):
        page = admin_client.get(REQUESTS).content.decode()
    assert "team 19" in page
    assert "0.000019" in page


def test_the_way_to_all_of_them_is_offered_where_some_are_left_out(admin_client: Client) -> None:
    make_record()
    assert "Show all" not in admin_client.get(REQUESTS).content.decode()
    assert "Show all" in admin_client.get(f"{REQUESTS}?model=tiny").content.decode()
    assert "Show all" in admin_client.get(f"{REQUESTS}?q={uuid.uuid4()}").content.decode()


def test_the_record_has_its_moments_and_its_tokens_by_kind(admin_client: Client) -> None:
    record = make_record(
        first_token_at=NOON + timedelta(milliseconds=1_250), input_tokens=1_100, cached_tokens=100
    )
    page = admin_client.get(f"{REQUESTS}{record.pk}/change/").content.decode()
    assert "<tr><th>first token</th><td>2026-08-07 12:00:01.250</td><td>+1.250 s</td></tr>" in page
    assert "<tr><th>input</th><td>1,000</td></tr>" in page
    assert "taken by the engine" not in page


def test_moments_are_shown_to_the_second(admin_client: Client) -> None:
    make_record()
    assert "2026-08-07 12:00:00" in admin_client.get(REQUESTS).content.decode()


@pytest.mark.parametrize("prefix", ["", "msg_", "req_", "resp_", "chatcmpl-", "  "])
def test_a_request_is_found_by_its_id_under_any_name(admin_client: Client, prefix: str) -> None:
    record, _ = make_record(), make_record()
    assert shown(admin_client, f"?q={prefix}{record.pk}") == [str(record.pk)]


def test_anything_else_finds_nothing_and_looks_nowhere(
    admin_client: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    make_record()
    with django_assert_max_num_queries(5) as queries:
        assert admin_client.get(f"{REQUESTS}?q=laptop").status_code == 200
    assert not any("jobs_requestrecord" in query["sql"] for query in queries.captured_queries)


def test_lists_are_narrowed_by_status_model_team_and_time(admin_client: Client) -> None:
    record = make_record(
        status="failed", model="vendor/large", team_id=8, created_at=timezone.now()
    )
    make_record()
    for address in ("status__exact=failed", "model=vendor/large", "team=8", "within=hour"):
        assert shown(admin_client, f"?{address}") == [str(record.pk)], address


@pytest.mark.parametrize(
    "address", ["?error__icontains=x", "?client=x", "?status__exact=%00", "?model=%00"]
)
def test_no_other_look_up_is_taken(admin_client: Client, address: str) -> None:
    """It might read every row, or be one that the database refuses."""
    assert admin_client.get(f"{REQUESTS}{address}").status_code == 400


def test_the_list_says_why_a_request_failed_and_leads_to_its_story(admin_client: Client) -> None:
    failed = make_record(status="failed", detail="engine_failed", error="the device is gone")
    page = admin_client.get(REQUESTS).content.decode()
    assert "engine failed: the device is gone" in page
    assert f'href="/admin/requests/{failed.pk}/"' in page


def test_what_ended_well_is_given_no_reason(admin_client: Client) -> None:
    make_record(status="completed", ending="finished", detail="stop")
    page = admin_client.get(REQUESTS)
    assert "stop" not in page.content.decode().split('id="result_list"')[1].split("</table>")[0]


def test_the_failed_ones_are_a_click_away_whatever_else_the_list_is_narrowed_to(
    admin_client: Client,
) -> None:
    page = admin_client.get(f"{REQUESTS}?model=tiny&p=2&status__exact=completed").content.decode()
    way = re.search(r'href="([^"]+failed_only[^"]+)"', page)
    assert way is not None
    answer = admin_client.get(unescape(way[1]))
    assert answer["location"] == f"{REQUESTS}?model=tiny&status__exact=failed"


def test_the_detail_tells_the_whole_story(admin_client: Client) -> None:
    record = make_record(
        taken_at=NOON + timedelta(milliseconds=5),
        first_token_at=NOON + timedelta(milliseconds=150),
        input_tokens=1_000,
        cached_tokens=300,
        cost_micros=1_234_567,
        body_digest=bytes(range(32)),
        error="",
    )
    price = Price.objects.create(
        model="tiny",
        effective_from=NOON,
        input_micros_per_mtok=1,
        cached_input_micros_per_mtok=1,
        cache_write_micros_per_mtok=1,
        output_micros_per_mtok=1,
    )
    entry = bill(record, price)
    page = unescape(admin_client.get(f"{REQUESTS}{record.pk}/change/").content.decode())
    assert "2026-08-07 12:00:00.150" in page
    assert "+0.150 s" in page
    assert "<th>input</th><td>700</td>" in page
    assert "1.234567" in page
    assert "tiny from 2026-08-07 12:00" in page
    assert f"{ENTRIES}{entry.pk}/change/" in page
    assert bytes(range(32)).hex() in page


def test_bodies_are_shown_without_the_bytes_of_images(admin_client: Client) -> None:
    record = make_record(created_at=timezone.now())
    source = {"type": "base64", "media_type": "image/png", "data": "A" * 5_000}
    body = {"messages": [{"role": "user", "content": [{"type": "image", "source": source}]}]}
    RequestBody.objects.create(
        record_id=record.pk,
        created_at=NOON,
        body=zlib.compress(json.dumps(body).encode()),
        answer=zlib.compress(msgspec.msgpack.encode([TextPart("a <b>bold</b> answer")])),
    )
    page = admin_client.get(f"{REQUESTS}{record.pk}/change/").content.decode()
    assert "image/png" in page
    assert "(5,000 characters)" in page
    assert "A" * 100 not in page
    assert "a &lt;b&gt;bold&lt;/b&gt; answer" in page


def test_bodies_that_are_not_kept_are_said_to_be_so(admin_client: Client) -> None:
    page = admin_client.get(f"{REQUESTS}{make_record().pk}/change/").content.decode()
    assert page.count("Not kept.") == 2


@pytest.mark.parametrize("why", ["zero retention", "over its time"])
def test_bodies_that_may_not_be_kept_any_more_are_not_shown(admin_client: Client, why: str) -> None:
    """They are deleted a while later."""
    team = Team.objects.create(name="blue", zero_data_retention=why == "zero retention")
    days = settings.TANDEM.BODY_RETENTION_DAYS if why == "over its time" else 0
    record = make_record(team_id=team.pk, created_at=timezone.now() - timedelta(days=days))
    RequestBody.objects.create(
        record_id=record.pk, created_at=record.created_at, body=zlib.compress(b'{"secret":1}')
    )
    assert "secret" not in admin_client.get(f"{REQUESTS}{record.pk}/change/").content.decode()


def test_bodies_take_a_permission_of_their_own(client: Client) -> None:
    record = make_record(created_at=timezone.now())
    RequestBody.objects.create(
        record_id=record.pk, created_at=NOON, body=zlib.compress(b'{"secret":1}')
    )
    operator = User.objects.create_user("op", is_staff=True)
    operator.user_permissions.add(Permission.objects.get(codename="view_requestrecord"))
    client.force_login(operator)
    assert "secret" not in client.get(f"{REQUESTS}{record.pk}/change/").content.decode()
    operator.user_permissions.add(Permission.objects.get(codename="view_requestbody"))
    assert "secret" in client.get(f"{REQUESTS}{record.pk}/change/").content.decode()


def test_only_images_and_data_urls_are_cut() -> None:
    value = {"a": ["x" * 99, {"url": "data:image/png;base64," + "A" * 99}], "data": "y" * 99}
    cut = without_images(value)
    assert cut["a"][0] == "x" * 99
    assert cut["data"] == "y" * 99
    assert cut["a"][1]["url"].endswith("… (121 characters)")


def test_an_entry_of_the_ledger_is_found_by_its_request(admin_client: Client) -> None:
    record = make_record()
    bill(record)
    ledger.top_up(record.team_id, 5, description="a top-up")
    page = admin_client.get(f"{ENTRIES}?q=msg_{record.pk}").content.decode()
    assert str(record.pk) in page
    assert "a top-up" not in page
    assert "-1.234567" in page


def test_the_ledger_is_listed_in_a_few_queries_with_units(
    admin_client: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for _ in range(5):
        bill(make_record())
    with django_assert_max_num_queries(6):
        page = admin_client.get(ENTRIES).content.decode()
    assert "-6.172835" in page
    assert "team 7" in page


def test_a_seal_is_shown_without_its_rows_one_by_one(
    admin_client: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    AuditSeal.objects.create(
        number=1,
        created_at=NOON,
        rows=1,
        leaves=b"L" * 48,
        rows_digest=bytes(32),
        digest=bytes(range(32)),
    )
    with django_assert_max_num_queries(5) as queries:
        page = admin_client.get("/admin/jobs/auditseal/").content.decode()
    assert bytes(range(32)).hex() in page
    assert not any('"leaves"' in query["sql"] for query in queries.captured_queries)
    assert admin_client.get("/admin/jobs/auditseal/1/change/").status_code == 200
