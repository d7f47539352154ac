"""Calls that the server ran, as `mcp_call` items, held against the official SDK's types."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.dialects.context import ParseContext
from gateway.dialects.responses.encode import ResponseEncoder, render
from gateway.dialects.responses.items import locate
from gateway.dialects.responses.parse import to_request
from gateway.dialects.responses.wire import decode
from inference.errors import ErrorCode
from inference.events import (
    Event,
    Failed,
    Finished,
    ServerToolCall,
    ServerToolResult,
    Started,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
)
from inference.fold import Answer, Parts
from inference.request import Role, ServerToolCallPart, ServerToolResultPart
from tests.openai_types import check_response
from tests.unit.gateway.dialects.responses.runs import (
    CALLED,
    CUT,
    END,
    HEX,
    ID,
    kinds,
    read_frames,
    shape_of,
    stream_of,
)

CALL_ID = "0193f5a2-2222-7aaa-8bbb-0123456789ab"
CALL = ServerToolCall(id=CALL_ID, server="clock", name="now", arguments='{"zone": "UTC"}')
RESULT = ServerToolResult(call_id=CALL_ID, text="noon")
FAILURE = ServerToolResult(call_id=CALL_ID, text="no such zone", is_error=True)
ERROR = {
    "type": "mcp_tool_execution_error",
    "content": [{"type": "text", "text": "no such zone"}],
}
ITEM: dict[str, Any] = {
    "id": f"mcp_{HEX}_out_0",
    "type": "mcp_call",
    "status": "completed",
    "server_label": "clock",
    "name": "now",
    "arguments": '{"zone": "UTC"}',
    "output": "noon",
    "error": None,
    "approval_request_id": None,
}


def _rendered(events: list[Event], status: str = "completed") -> dict[str, Any]:
    parts, finished = Parts(), events[-1]
    for event in events[1:-1]:
        parts.add(event)  # type: ignore[arg-type]
    answer: Answer = parts.answer(finished if isinstance(finished, Finished) else END)
    return render(shape_of(), status, answer=answer)


def test_a_call_is_told_by_every_event_that_clients_wait_for() -> None:
    events = stream_of([Started(12), CALL, RESULT, TextDelta("Noon."), END])
    assert kinds(events)[:9] == [
        "created",
        "in_progress",
        "output_item.added",
        "mcp_call.in_progress",
        "mcp_call_arguments.delta",
        "mcp_call_arguments.done",
        "mcp_call.completed",
        "output_item.done",
        "output_item.added",
    ]
    added, done = events[2]["item"], events[7]["item"]
    assert (added["status"], added["arguments"]) == ("in_progress", "")
    assert events[5]["arguments"] == '{"zone": "UTC"}'
    assert done == ITEM
    assert events[8]["output_index"] == 1


def test_a_failure_of_the_tool_is_its_item_s() -> None:
    events = stream_of([Started(12), CALL, FAILURE, TextDelta("Sorry."), END])
    assert "mcp_call.failed" in kinds(events)
    item = events[-1]["response"]["output"][0]
    assert (item["status"], item["error"], item["output"]) == ("failed", ERROR, None)
    assert events[-1]["response"]["status"] == "completed"


@pytest.mark.parametrize("result", [RESULT, FAILURE])
@pytest.mark.parametrize("end", [END, CUT])
def test_the_stream_and_the_object_say_the_same(result: ServerToolResult, end: Finished) -> None:
    run: list[Event] = [Started(12), TextDelta("Hm."), CALL, result, TextDelta("So."), end]
    streamed = stream_of(run)[-1]["response"]
    check_response(streamed)
    assert streamed == _rendered(run, streamed["status"])


def test_a_mixed_round_has_both_kinds_of_calls() -> None:
    own = ToolCallStarted(id=CALL_ID, name="mine")
    run: list[Event] = [Started(12), own, ToolCallDelta("{}"), CALL, RESULT, CALLED]
    streamed = stream_of(run)[-1]["response"]
    assert [item["type"] for item in streamed["output"]] == ["function_call", "mcp_call"]
    assert streamed == _rendered(run)


def test_a_call_that_was_broken_off_is_incomplete() -> None:
    encoder = ResponseEncoder(shape_of())
    failed = Failed(code=ErrorCode.ENGINE_LOST, message="gone")
    events: list[Event] = [Started(12), CALL, failed]
    frames = read_frames(b"".join(map(encoder.feed, events)))
    assert frames[-1]["response"]["output"][0]["status"] == "incomplete"


def test_its_id_tells_where_it_stands() -> None:
    place = locate(ITEM["id"])
    assert place
    assert (place.response_id, place.in_output, place.number) == (ID, True, 0)


@pytest.mark.parametrize(
    ("fields", "text", "is_error"),
    [
        ({}, "noon", False),
        ({"output": None, "error": "no such zone"}, "no such zone", True),
        ({"output": None, "error": ERROR}, "no such zone", True),
        ({"output": None, "error": {"code": 1}}, '{"code": 1}', True),
        ({"output": None}, "", False),
    ],
)
def test_an_item_can_be_sent_back(fields: dict[str, Any], text: str, is_error: bool) -> None:
    given = [{"role": "user", "content": "When?"}, ITEM | fields]
    body = decode({"model": "m", "input": given}).body
    context = ParseContext(request_id=ID, model="m", deadline_s=9.0, context_tokens=100)
    told = to_request(body, context).messages[1]
    assert told.role is Role.ASSISTANT
    assert told.parts == (
        ServerToolCallPart(
            id=f"mcp_{HEX}_out_0", server="clock", name="now", arguments='{"zone": "UTC"}'
        ),
        ServerToolResultPart(call_id=f"mcp_{HEX}_out_0", text=text, is_error=is_error),
    )
