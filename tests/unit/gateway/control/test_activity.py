"""Requests, listed and in whole."""

from __future__ import annotations

import json
import uuid
import zlib
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries, Settings

from gateway.keys import mint
from inference.errors import ErrorCode
from inference.events import Usage
from inference.fold import AnswerPart
from inference.request import (
    ServerToolCallPart,
    ServerToolResultPart,
    TextPart,
    ToolCallPart,
)
from jobs import ledger, reports
from jobs.models import Price, RequestBody, RequestRecord
from tests.unit.gateway.control.conftest import Caller, MakeRecord

pytestmark = pytest.mark.django_db

ITEM = {
    *("id", "created_at", "completed_at", "status", "model", "custom_id", "type", "batch_id"),
    *("stream_id", "prompt_tokens", "completion_tokens", "total_tokens", "cached_prompt_tokens"),
    *("cost_micros", "error"),
}
SENT = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5}


def keep(record: RequestRecord, answer: tuple[AnswerPart, ...] | None) -> None:
    RequestBody.objects.create(
        record_id=record.id,
        created_at=record.created_at,
        body=zlib.compress(json.dumps(SENT).encode()),
        answer=None if answer is None else zlib.compress(msgspec.msgpack.encode(answer)),
    )


def listed(caller: Caller, **query: object) -> list[str]:
    response = caller.get("activity", **query)
    assert response.status_code == 200, response.content
    return [item["id"] for item in response.json()["items"]]


def test_an_item_has_every_key_of_the_contract(caller: Caller, make_record: MakeRecord) -> None:
    record = make_record(caller)
    page = caller.get("activity").json()
    (item,) = page.pop("items")
    assert page == {"page": 1, "page_size": 25, "total": 1, "total_is_capped": False}
    assert item.keys() >= ITEM
    assert item["id"] == str(record.id)
    assert item["status"] == "completed"
    assert item["completed_at"].endswith("Z")
    assert (item["prompt_tokens"], item["completion_tokens"], item["total_tokens"]) == (10, 5, 15)
    assert (item["cached_prompt_tokens"], item["cost_micros"], item["error"]) == (4, 42, None)


def test_an_item_says_what_it_was_a_part_of(caller: Caller, make_record: MakeRecord) -> None:
    batch_id, stream_id = uuid.uuid4(), uuid.uuid4()
    alone = make_record(caller)
    row = make_record(caller, type="batch", batch_id=batch_id, custom_id="mine")
    grouped = make_record(caller, type="stream", stream_id=stream_id)
    items = {item["id"]: item for item in caller.get("activity").json()["items"]}

    def parts(record: RequestRecord) -> tuple[object, ...]:
        item = items[str(record.id)]
        return item["type"], item["batch_id"], item["stream_id"], item["custom_id"]

    assert parts(alone) == ("standalone", None, None, None)
    assert parts(row) == ("batch", str(batch_id), None, "mine")
    assert parts(grouped) == ("stream", None, str(stream_id), None)


def test_a_running_request_is_not_completed_and_not_billed(
    caller: Caller, make_record: MakeRecord
) -> None:
    make_record(caller, status="running", closed_at=None, cost_micros=None)
    (item,) = caller.get("activity").json()["items"]
    assert (item["completed_at"], item["cost_micros"]) == (None, None)


def test_the_newest_come_first_page_by_page(caller: Caller, make_record: MakeRecord) -> None:
    ids = [str(make_record(caller).id) for _ in range(5)][::-1]
    assert listed(caller) == ids
    assert [listed(caller, page=page, page_size=2) for page in (1, 2, 3, 4)] == [
        ids[:2],
        ids[2:4],
        ids[4:],
        [],
    ]
    assert caller.get("activity", page=4, page_size=2).json()["total"] == 5


def test_a_long_list_is_counted_so_far_and_no_further(
    caller: Caller, make_record: MakeRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "COUNTED_AT_MOST", 4)
    for _ in range(4):
        make_record(caller)
    page = caller.get("activity", page_size=2).json()
    assert (page["total"], page["total_is_capped"]) == (4, False)
    make_record(caller)
    page = caller.get("activity", page_size=2).json()
    assert (page["total"], page["total_is_capped"]) == (4, True)
    assert len(listed(caller, page=2, page_size=2)) == 2
    response = caller.get("activity", page=3, page_size=2)
    assert response.status_code == 400
    assert "set created_before" in response.json()["error"]["message"]


def test_it_filters_by_everything_that_it_names(caller: Caller, make_record: MakeRecord) -> None:
    colleague = Caller(mint("phone", "blue", owner="bob"))
    wanted = make_record(colleague, status="failed", model="other", type="batch")
    others = [make_record(caller), make_record(caller)]
    assert len(listed(caller)) == 3
    for query in (
        {"status": "failed"},
        {"model": "other"},
        {"type": "batch"},
        {"key_id": colleague.key.id},
        {"user_id": "bob"},
        {"user_id": "bob", "key_id": colleague.key.id},
        {"created_before": others[0].created_at.isoformat()},
        {"status": "failed", "type": "", "page": ""},
    ):
        assert listed(caller, **query) == [str(wanted.id)], query
    for query in (
        {"user_id": "nobody"},
        {"user_id": "ann", "key_id": colleague.key.id},
        {"status": "pending"},
        {"type": "stream"},
    ):
        assert listed(caller, **query) == [], query


def test_a_time_range_has_its_begin_and_not_its_end(
    caller: Caller, make_record: MakeRecord
) -> None:
    first, second, third = (make_record(caller).created_at for _ in range(3))
    page = caller.get(
        "activity", created_after=first.isoformat(), created_before=third.isoformat()
    ).json()
    moments = [item["created_at"] for item in page["items"]]
    assert moments == [moment.isoformat().replace("+00:00", "Z") for moment in (second, first)]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"page": "0"}, "page: Ensure this value is greater than or equal to 1."),
        ({"page_size": "101"}, "page_size: Ensure this value is less than or equal to 100."),
        ({"page": "x"}, "page: A valid integer is required."),
        ({"status": "done"}, 'status: "done" is not a valid choice.'),
        ({"type": "x"}, 'type: "x" is not a valid choice.'),
        ({"created_after": "yesterday"}, "created_after: Datetime has wrong format"),
        ({"key_id": "x"}, "key_id: Must be a valid UUID."),
        ({"model": "a\0"}, "model: Null characters are not allowed."),
        ({"page": "999999999"}, "page: only the newest 10,000 requests"),
    ],
)
def test_a_wrong_query_is_refused_with_the_field_s_name(
    caller: Caller, query: dict[str, str], message: str
) -> None:
    response = caller.get("activity", **query)
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith(message)


def test_the_list_takes_as_many_queries_for_one_request_as_for_many(
    caller: Caller, make_record: MakeRecord, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for _ in range(5):
        make_record(caller)
    with django_assert_num_queries(2):
        listed(caller)
    with django_assert_num_queries(3):
        listed(caller, page_size=5)
    with django_assert_num_queries(3):
        listed(caller, user_id="ann")


def test_no_route_tells_of_another_team(
    caller: Caller, stranger: Caller, make_record: MakeRecord
) -> None:
    record = make_record(caller)
    assert listed(stranger) == listed(stranger, key_id=caller.key.id) == []
    assert listed(stranger, user_id="ann") == []
    assert stranger.get("activity/models").json() == {"items": []}
    response = stranger.get(f"activity/{record.id}")
    unknown = stranger.get(f"activity/{uuid.uuid4()}")
    assert response.status_code == unknown.status_code == 404
    assert response.json()["error"]["message"] == f"there is no request '{record.id}'"


def test_models_are_those_that_were_called_in_order(
    caller: Caller, make_record: MakeRecord, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for model in ("b", "a", "b", "vendor/c"):
        make_record(caller, model=model)
    with django_assert_num_queries(2):
        assert caller.get("activity/models").json() == {"items": ["a", "b", "vendor/c"]}


@pytest.mark.parametrize("prefix", ["", "msg_", "req_", "resp_", "chatcmpl-", "chatcmpl_"])
def test_a_request_is_found_by_its_id_under_any_name(
    caller: Caller, make_record: MakeRecord, prefix: str
) -> None:
    record = make_record(caller)
    assert caller.get(f"activity/{prefix}{record.id}").json()["id"] == str(record.id)


def test_the_detail_shows_what_was_sent_answered_and_paid(
    caller: Caller, make_record: MakeRecord, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    record = make_record(caller, lane="flex", thinking_tokens=1, ignored_fields=["speed"])
    call = ToolCallPart(id="12345678-1234-5678-1234-567812345678", name="f", arguments='{"x":1}')
    keep(record, (TextPart("Hello"), call))
    bill(record)
    with django_assert_num_queries(4):
        detail = caller.get(f"activity/msg_{record.id}").json()
    assert detail["body_json"] == SENT
    answer = detail["result_json"]
    assert (answer["id"], answer["model"]) == (f"msg_{record.id}", "tiny")
    assert [block["type"] for block in answer["content"]] == ["text", "tool_use"]
    assert answer["content"][1]["input"] == {"x": 1}
    assert answer["stop_reason"] == "end_turn"
    assert answer["usage"]["input_tokens"] == 6
    assert detail["error_json"] is None
    assert detail["ignored_fields"] == ["speed"]
    assert detail["price"] == {
        "effective_from": "2026-01-01T00:00:00Z",
        "input_micros_per_mtok": 3_000_000,
        "cached_input_micros_per_mtok": 300_000,
        "cache_write_micros_per_mtok": 3_750_000,
        "output_micros_per_mtok": 15_000_000,
        "factor_permille": 400,
    }


def bill(record: RequestRecord) -> None:
    price = Price.objects.create(
        model="tiny",
        effective_from="2026-01-01T00:00:00Z",
        input_micros_per_mtok=3_000_000,
        cached_input_micros_per_mtok=300_000,
        cache_write_micros_per_mtok=3_750_000,
        output_micros_per_mtok=15_000_000,
        flex_permille=400,
    )
    charge = ledger.Charge(
        request_id=str(record.id),
        team_id=record.team_id,
        key_id=str(record.key_id),
        model=record.model,
        lane=record.lane,
        usage=Usage(prompt_tokens=10, cached_tokens=4, output_tokens=5),
        cost_micros=42,
        price_id=price.pk,
    )
    ledger.charge([charge], timezone.now())


def test_an_answer_that_was_broken_off_is_shown_without_a_stop_reason(
    caller: Caller, make_record: MakeRecord
) -> None:
    record = make_record(caller, status="cancelled", ending="cancelled", detail="cancelled")
    keep(record, (TextPart("Hel"),))
    detail = caller.get(f"activity/{record.id}").json()
    assert detail["result_json"]["content"] == [{"type": "text", "text": "Hel"}]
    assert detail["result_json"]["stop_reason"] is None
    assert detail["error_json"] is None


@pytest.mark.parametrize(
    ("ending", "detail", "status", "kind"),
    [
        ("failed", ErrorCode.PROMPT_TOO_LONG, 400, "invalid_request_error"),
        ("timeout", ErrorCode.TIMEOUT, 504, "timeout_error"),
        ("engine_lost", "", 500, "api_error"),
        ("gateway_lost", "", 500, "api_error"),
    ],
)
def test_a_failure_is_told_as_its_caller_was_told(
    caller: Caller, make_record: MakeRecord, ending: str, detail: str, status: int, kind: str
) -> None:
    record = make_record(caller, status="failed", ending=ending, detail=detail, error="a reason")
    told = caller.get(f"activity/{record.id}").json()
    assert told["error"] == "a reason"
    assert told["error_json"]["error"] == {"type": kind, "message": "a reason"}
    assert told["error_json"]["status_code"] == status
    assert told["error_json"]["request_id"] == f"req_{record.id}"


def test_a_completion_is_shown_as_its_caller_saw_it(
    caller: Caller, make_record: MakeRecord
) -> None:
    record = make_record(caller, dialect="chat", lane="flex")
    keep(record, (TextPart("Hello"),))
    answer = caller.get(f"activity/chatcmpl-{record.id}").json()["result_json"]
    assert (answer["id"], answer["object"]) == (f"chatcmpl-{record.id}", "chat.completion")
    assert answer["created"] == int(record.created_at.timestamp())
    assert answer["service_tier"] == "flex"
    assert answer["choices"][0]["message"]["content"] == "Hello"
    assert answer["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("dialect", ["anthropic", "chat", "responses"])
def test_calls_that_the_server_ran_are_shown_in_every_dialect(
    caller: Caller, make_record: MakeRecord, dialect: str
) -> None:
    record = make_record(caller, dialect=dialect)
    call = ServerToolCallPart(id="1", server="clock", name="now", arguments='{"zone":"UTC"}')
    result = ServerToolResultPart(call_id="1", text="noon")
    keep(record, (call, result, TextPart("Noon.")))
    answer = caller.get(f"activity/{record.id}").json()["result_json"]
    blocks = answer["server_tool_calls"] if dialect == "chat" else answer["content"][:2]
    assert [block["type"] for block in blocks] == ["mcp_tool_use", "mcp_tool_result"]
    assert blocks[0]["input"] == {"zone": "UTC"}
    assert blocks[1]["content"] == [{"type": "text", "text": "noon"}]


def test_a_completion_that_failed_is_shown_as_its_caller_saw_it(
    caller: Caller, make_record: MakeRecord
) -> None:
    failure = {"status": "failed", "ending": "failed", "detail": ErrorCode.RESOURCE_UNAVAILABLE}
    record = make_record(caller, dialect="chat", error="no room", **failure)
    keep(record, (TextPart("Hel"),))
    told = caller.get(f"activity/{record.id}").json()
    assert told["result_json"]["choices"][0]["finish_reason"] is None
    assert told["error_json"] == {
        "error": {
            "message": "no room",
            "type": "rate_limit_error",
            "param": None,
            "code": "resource_unavailable",
        }
    }


def test_bodies_are_not_shown_to_a_team_with_zero_data_retention(
    caller: Caller, make_record: MakeRecord
) -> None:
    record = make_record(caller)
    keep(record, (TextPart("Hello"),))
    caller.team.zero_data_retention = True
    caller.team.save()
    detail = caller.get(f"activity/{record.id}").json()
    assert (detail["body_json"], detail["result_json"]) == (None, None)


def test_bodies_are_not_shown_after_their_time_though_they_are_still_there(
    caller: Caller, make_record: MakeRecord, settings: Settings
) -> None:
    record = make_record(caller, created_at=timezone.now() - timedelta(days=3, seconds=1))
    keep(record, (TextPart("Hello"),))
    assert caller.get(f"activity/{record.id}").json()["body_json"] == SENT
    settings.TANDEM = settings.TANDEM.model_copy(update={"BODY_RETENTION_DAYS": 3})
    detail = caller.get(f"activity/{record.id}").json()
    assert (detail["body_json"], detail["result_json"]) == (None, None)


def test_a_request_without_kept_bodies_is_shown_without(
    caller: Caller, make_record: MakeRecord
) -> None:
    kept: Any = caller.get(f"activity/{make_record(caller).id}").json()
    assert (kept["body_json"], kept["result_json"], kept["price"]) == (None, None, None)
