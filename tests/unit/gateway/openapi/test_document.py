"""The published document: complete, valid, and true to what the encoders write."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator, ValidationError
from openapi_spec_validator import validate

from gateway.config import BASE_DIR
from gateway.dialects.anthropic.encode import PING, MessageStream, failure, message
from gateway.dialects.anthropic.wire import SERVING_FIELDS, MessagesBody, decode_messages
from gateway.errors import ERRORS
from gateway.openapi.document import build
from gateway.routes import PUBLIC_PATHS, ROUTES
from inference.errors import ErrorCode, TandemError
from inference.events import (
    Event,
    Finished,
    FinishReason,
    ServerToolCall,
    ServerToolResult,
    Started,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
)
from inference.fold import Answer
from inference.request import (
    ServerToolCallPart,
    ServerToolResultPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from tests.schemas import Document, close_answers

DOCUMENT = build()
CLOSED = close_answers(build())
CALL_ID = "0f8a1c2e-0000-4000-8000-00000000000a"
FINISHED = Finished(
    reason=FinishReason.TOOL_USE,
    usage=Usage(prompt_tokens=9, cached_tokens=1, output_tokens=3),
)
EVENTS: list[Event] = [
    Started(9),
    ThinkingDelta("hm"),
    TextDelta("a"),
    ToolCallStarted(id=CALL_ID, name="f"),
    ToolCallDelta("{}"),
    ServerToolCall(id=CALL_ID, server="s", name="f", arguments="{}"),
    ServerToolResult(call_id=CALL_ID, text="b"),
    FINISHED,
]


def check(document: Document, schema: dict[str, Any], value: Any) -> None:
    """Raise unless a value fits a schema that refers to the document's components."""
    Draft202012Validator(schema | {"components": document["components"]}).validate(value)


def check_named(name: str, value: Any) -> None:
    check(CLOSED, {"$ref": f"#/components/schemas/{name}"}, value)


def operations() -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in CLOSED["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def media_types() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each body and answer of every operation."""
    for name, operation in operations():
        bodies = {"body": operation.get("requestBody", {})} | operation["responses"]
        for place, body in bodies.items():
            for media_type in body.get("content", {}).values():
                yield f"{name} {place}", media_type


def examples() -> Iterator[Any]:
    for place, media_type in media_types():
        named = media_type.get("examples", {}).items()
        values = [(name, example["value"]) for name, example in named]
        values += [("", media_type["example"])] if "example" in media_type else []
        for name, value in values:
            yield pytest.param(media_type["schema"], value, id=f"{place} {name}".strip())


EXAMPLES = list(examples())


def test_it_is_valid_openapi() -> None:
    validate(DOCUMENT)


def test_it_is_the_same_in_every_process() -> None:
    assert json.dumps(build()) == json.dumps(DOCUMENT)


def test_it_has_every_route_with_the_methods_that_are_allowed() -> None:
    told = {
        path: {method.upper() for method in methods} for path, methods in DOCUMENT["paths"].items()
    }
    allowed: dict[str, set[str]] = {}
    for route in ROUTES:
        allowed.setdefault(route.path, set()).update(set(route.consumer.methods) - {"HEAD"})
    assert told == allowed


def test_it_needs_a_key_wherever_the_routes_do() -> None:
    public = {path for path, methods in DOCUMENT["paths"].items() if methods_are_public(methods)}
    assert public == PUBLIC_PATHS
    assert DOCUMENT["security"] == [{"apiKey": []}, {"bearer": []}]


def methods_are_public(methods: dict[str, Any]) -> bool:
    return all(operation.get("security") == [] for operation in methods.values())


def test_every_operation_has_a_name_of_its_own() -> None:
    names = [operation["operationId"] for _, operation in operations()]
    assert len(set(names)) == len(names)


def test_its_version_is_the_package_s() -> None:
    project = tomllib.loads((BASE_DIR / "pyproject.toml").read_text("utf-8"))["project"]
    assert DOCUMENT["info"]["version"] == project["version"]


def test_no_two_models_share_a_name() -> None:
    """pydantic tells such models apart by their modules, and references would miss them."""
    assert [name for name in DOCUMENT["components"]["schemas"] if "__" in name] == []


def test_there_are_examples_of_every_body_and_answer_but_events_and_files() -> None:
    without = [
        place
        for place, media_type in media_types()
        if not {"example", "examples"} & media_type.keys()
    ]
    assert without == [
        "POST /v1/messages 200",
        "POST /v1/chat/completions 200",
        "POST /v1/responses 200",
        "GET /v1/responses/{response_id} 200",
        "GET /metrics 200",
        "GET /openapi.json 200",
    ]


@pytest.mark.parametrize(("schema", "value"), EXAMPLES)
def test_an_example_fits_its_schema(schema: dict[str, Any], value: Any) -> None:
    check(CLOSED, schema, value)


def test_the_body_has_every_field_that_is_read_and_that_is_accepted() -> None:
    properties = DOCUMENT["components"]["schemas"]["MessagesBody"]["properties"]
    assert properties.keys() == MessagesBody.model_fields.keys() | SERVING_FIELDS


def test_a_count_needs_no_max_tokens() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    assert schemas["MessagesBody"]["required"] == ["model", "max_tokens", "messages"]
    assert schemas["CountTokensBody"]["required"] == ["model", "messages"]


@pytest.mark.parametrize(
    "changes",
    [
        {"messages": []},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": ""}]}]},
        {"stop_sequences": [""]},
        {"tools": [{"name": "f", "input_schema": {"type": "array"}}]},
        {"tools": [{"type": "custom", "name": "f"}]},
        {"tool_choice": "f"},
    ],
)
def test_rules_that_validators_hold_are_in_the_schema(changes: dict[str, Any]) -> None:
    turn = {"role": "user", "content": "hi"}
    body = {"model": "m", "max_tokens": 5, "messages": [turn]} | changes
    with pytest.raises(TandemError):
        decode_messages(body)
    with pytest.raises(ValidationError):
        check_named("MessagesBody", body)


@pytest.mark.parametrize(
    "changes",
    [
        {"tools": [{"type": "function", "function": {"name": "f"}}, {"type": "web_search_1"}]},
        {"tools": [{"type": "custom", "name": "f", "input_schema": {"type": "object"}}]},
        {"tool_choice": "auto"},
        {"system": [{"type": "text", "text": "a", "citations": []}]},
        {"top_k": None, "temperature": 2, "metadata": {}},
    ],
)
def test_whatever_is_read_fits_the_schema(changes: dict[str, Any]) -> None:
    turn = {"role": "user", "content": "hi"}
    body = {"model": "m", "max_tokens": 5, "messages": [turn]} | changes
    decode_messages(body)
    check_named("MessagesBody", body)


def test_a_message_of_every_kind_of_block_fits_its_schema() -> None:
    parts = (
        *(ThinkingPart("hm"), TextPart("a"), ToolCallPart(id=CALL_ID, name="f", arguments="{}")),
        ServerToolCallPart(id=CALL_ID, server="s", name="f", arguments="{}"),
        ServerToolResultPart(call_id=CALL_ID, text="b", is_error=True),
    )
    answer = Answer(parts=parts, finished=FINISHED)
    check_named("Message", json.loads(message(answer, "msg_1", "m")))


def test_every_event_of_a_stream_fits_its_schema() -> None:
    stream = MessageStream("msg_1", "m", "req_1")
    frames = [*map(stream.feed, EVENTS), PING]
    frames.append(failure(TandemError(ErrorCode.TIMEOUT, "late"), "req_1"))
    records = b"".join(frames).decode().removesuffix("\n\n").split("\n\n")
    seen = set()
    for record in records:
        event = json.loads(record.partition("data: ")[2])
        seen.add(event["type"])
        check_named("MessageStreamEvent", event)
    union = CLOSED["components"]["schemas"]["MessageStreamEvent"]
    assert seen == union["discriminator"]["mapping"].keys()


def test_every_error_that_it_tells_has_the_status_of_the_table() -> None:
    for _, operation in operations():
        for status, answer in operation["responses"].items():
            for code in answer.get("content", {}).get("application/json", {}).get("examples", {}):
                row = ERRORS[ErrorCode(code)]
                assert int(status) in (row.status, row.openai_status)
