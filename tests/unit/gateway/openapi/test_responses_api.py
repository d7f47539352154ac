"""What the document says of the Responses routes is true to what they take and write."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator, ValidationError

from gateway.dialects.responses.encode import ResponseEncoder, Shape, render
from gateway.dialects.responses.wire import SERVING_FIELDS, ResponsesBody, decode
from gateway.openapi.document import build
from inference.errors import ErrorCode, TandemError
from inference.events import (
    Delta,
    Event,
    Finished,
    FinishReason,
    Likely,
    ServerToolCall,
    ServerToolResult,
    Started,
    TextDelta,
    ThinkingDelta,
    TokenLogprob,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
)
from inference.fold import Parts
from tests.schemas import close_answers

CLOSED = close_answers(build())
ID = "0193f5a2-1111-7aaa-8bbb-0123456789ab"
OTHER_ID = "0193f5a2-2222-7aaa-8bbb-0123456789ab"
LIKELY = Likely("a", -0.25, b"a")
SCORES = (TokenLogprob(LIKELY, (LIKELY,)),)
FINISHED = Finished(
    reason=FinishReason.TOOL_USE,
    usage=Usage(prompt_tokens=9, cached_tokens=1, output_tokens=3),
)
DELTAS: list[Delta] = [
    ThinkingDelta("hm"),
    TextDelta("a", SCORES),
    TextDelta("b"),
    ToolCallStarted(id=ID, name="f"),
    ToolCallDelta("{}"),
    ServerToolCall(id=ID, server="s", name="f", arguments="{}"),
    ServerToolResult(call_id=ID, text="b"),
    ServerToolCall(id=OTHER_ID, server="s", name="f", arguments="{}"),
    ServerToolResult(call_id=OTHER_ID, text="b", is_error=True),
]
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}}


def shape_of(**body: Any) -> Shape:
    return Shape(id=ID, created_at_s=1.0, model="m", body=body)


def check_named(name: str, value: Any) -> None:
    """Raise unless a value fits one of the document's components."""
    schema = {"$ref": f"#/components/schemas/{name}", "components": CLOSED["components"]}
    Draft202012Validator(schema).validate(value)


def check_event(value: Any) -> None:
    """Raise unless a value fits one of the events."""
    operation = CLOSED["paths"]["/v1/responses"]["post"]
    stream = operation["responses"]["200"]["content"]["text/event-stream"]["schema"]
    schema = stream["properties"]["data"]["contentSchema"]
    Draft202012Validator(schema | {"components": CLOSED["components"]}).validate(value)


def test_the_body_has_every_field_that_is_read_and_that_is_accepted() -> None:
    properties = CLOSED["components"]["schemas"]["ResponsesBody"]["properties"]
    assert properties.keys() == ResponsesBody.model_fields.keys() | SERVING_FIELDS


@pytest.mark.parametrize("summary", [None, "auto"])
def test_a_response_with_every_kind_of_item_fits_its_schema(summary: str | None) -> None:
    parts = Parts()
    for delta in DELTAS:
        parts.add(delta)
    asked = shape_of(reasoning={"summary": summary}, tools=[TOOL], metadata={"a": "b"})
    check_named("ResponseObject", render(asked, "completed", answer=parts.answer(FINISHED)))


@pytest.mark.parametrize("code", list(ErrorCode))
def test_a_failed_response_fits_its_schema(code: ErrorCode) -> None:
    check_named("ResponseObject", render(shape_of(), "failed", error=TandemError(code, "no")))


@pytest.mark.parametrize("summary", [None, "auto"])
@pytest.mark.parametrize("background", [False, True])
def test_every_event_of_a_stream_fits_its_schema(summary: str | None, *, background: bool) -> None:
    shape = Shape(
        id=ID,
        created_at_s=1.0,
        model="m",
        body={"reasoning": {"summary": summary}},
        background=background,
    )
    encoder = ResponseEncoder(shape)
    events: list[Event] = [Started(9), *DELTAS, FINISHED]
    for frame in b"".join(map(encoder.feed, events)).decode().removesuffix("\n\n").split("\n\n"):
        check_event(json.loads(frame.partition("data: ")[2]))
    assert encoder.over


@pytest.mark.parametrize(
    "changes",
    [
        {"model": ""},
        {"max_output_tokens": 0},
        {"temperature": 2.1},
        {"top_p": 0},
        {"top_logprobs": 21},
        {"truncation": "middle"},
        {"input": [{"role": "bot", "content": "hi"}]},
        {"input": [{"type": "web_search_call", "id": "ws"}]},
        {"tools": [{"type": "function"}]},
        {"tool_choice": "any"},
        {"text": {"format": {"type": "json_schema", "name": "n"}}},
        {"metadata": dict.fromkeys(map(str, range(17)), "")},
    ],
    ids=str,
)
def test_rules_that_validators_hold_are_in_the_schema(changes: dict[str, Any]) -> None:
    body = {"model": "m", "input": "hi"} | changes
    with pytest.raises(TandemError):
        decode(body)
    with pytest.raises(ValidationError):
        check_named("ResponsesBody", body)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"input": [{"role": "user", "content": "hi"}]},
        {
            "input": [
                {
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_image", "image_url": "https://x/y.png"}],
                },
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": "ok"},
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
            ]
        },
        {"tools": [TOOL, {"type": "web_search"}], "tool_choice": "required"},
        {"tools": [TOOL], "tool_choice": {"type": "function", "name": "f"}},
        {
            "tools": [{"type": "function", "function": {"name": "f"}}],
            "tool_choice": {"type": "function", "function": {"name": "f"}},
        },
        {
            "tools": [TOOL],
            "tool_choice": {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "function", "name": "f"}],
            },
        },
        {"text": {"format": {"type": "json_object"}}, "reasoning": {"effort": "none"}},
        {"metadata": {"completion_window": "24h", "n": 1}, "service_tier": "flex"},
        {"max_output_tokens": 5.0},
    ],
    ids=str,
)
def test_whatever_is_read_fits_the_schema(changes: dict[str, Any]) -> None:
    body = {"model": "m", "input": "hi"} | changes
    decode(body)
    check_named("ResponsesBody", body)
