"""What the document says of the Chat route is true to what it takes and writes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator, ValidationError

from gateway.dialects.chat.encode import DONE, ChunkStream, Shape, completion, failure
from gateway.dialects.chat.wire import SERVING_FIELDS, ChatBody, decode_chat
from gateway.openapi.document import build
from gateway.serving.choices import Chosen
from inference.errors import ErrorCode, TandemError
from inference.events import (
    Event,
    Finished,
    FinishReason,
    Likely,
    Started,
    TextDelta,
    ThinkingDelta,
    TokenLogprob,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
)
from inference.fold import Answer
from inference.request import TextPart, ThinkingPart, ToolCallPart
from tests.schemas import close_answers

CLOSED = close_answers(build())
CALL_ID = "0f8a1c2e-0000-4000-8000-00000000000a"
LIKELY = Likely("a", -0.25, b"a")
SCORES = (TokenLogprob(LIKELY, (LIKELY,)),)
FINISHED = Finished(
    reason=FinishReason.TOOL_USE,
    usage=Usage(prompt_tokens=9, cached_tokens=1, output_tokens=3),
)
EVENTS: list[Event] = [
    Started(9),
    ThinkingDelta("hm"),
    TextDelta("a", SCORES),
    TextDelta("b"),
    ToolCallStarted(id=CALL_ID, name="f"),
    ToolCallDelta("{}"),
    FINISHED,
]
SHAPE = Shape(completion_id="chatcmpl-1", model="m", created_s=1, usage=True)
TURN = {"role": "user", "content": "hi"}


def check_named(name: str, value: Any) -> None:
    """Raise unless a value fits one of the document's components."""
    schema = {"$ref": f"#/components/schemas/{name}", "components": CLOSED["components"]}
    Draft202012Validator(schema).validate(value)


def test_the_body_has_every_field_that_is_read_and_that_is_accepted() -> None:
    properties = CLOSED["components"]["schemas"]["ChatBody"]["properties"]
    assert properties.keys() == ChatBody.model_fields.keys() | SERVING_FIELDS


def test_a_completion_of_every_kind_of_part_fits_its_schema() -> None:
    parts = (ThinkingPart("hm"), TextPart("a"), ToolCallPart(id=CALL_ID, name="f", arguments="{}"))
    answer = Answer(parts=parts, finished=FINISHED, logprobs=(SCORES,))
    bare = Answer(parts=(), finished=FINISHED)
    check_named("ChatCompletion", json.loads(completion([answer, bare], SHAPE)))


def test_every_chunk_of_a_stream_fits_its_schema() -> None:
    stream = ChunkStream(SHAPE)
    frames = b"".join(stream.feed(Chosen(0, event)) for event in EVENTS)
    assert frames.endswith(DONE)
    for record in frames.removesuffix(DONE).decode().removesuffix("\n\n").split("\n\n"):
        check_named("ChatCompletionChunk", json.loads(record.removeprefix("data: ")))


def test_a_failure_fits_its_schema() -> None:
    frame = failure(TandemError(ErrorCode.TIMEOUT, "late")).decode()
    check_named("OpenAIError", json.loads(frame.removeprefix("data: ")))


@pytest.mark.parametrize(
    "changes",
    [
        {"messages": []},
        {"messages": [TURN | {"content": 5}]},
        {"stop": [""]},
        {"tools": []},
        {"tool_choice": "any"},
        {"response_format": {"type": "xml"}},
        {"messages": [{"role": "assistant", "function_call": {}}]},
    ],
)
def test_rules_that_validators_hold_are_in_the_schema(changes: dict[str, Any]) -> None:
    body = {"model": "m", "messages": [TURN]} | changes
    with pytest.raises(TandemError):
        decode_chat(body)
    with pytest.raises(ValidationError):
        check_named("ChatBody", body)


@pytest.mark.parametrize(
    "changes",
    [
        {"stop": "END", "logit_bias": {"1": 1}, "seed": 1, "metadata": {}},
        {"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "auto"},
        {"messages": [{"role": "assistant", "content": None, "function_call": None}, TURN]},
        {"messages": [TURN | {"content": [{"type": "image_url", "image_url": "https://a/b"}]}]},
    ],
)
def test_whatever_is_read_fits_the_schema(changes: dict[str, Any]) -> None:
    body = {"model": "m", "messages": [TURN]} | changes
    decode_chat(body)
    check_named("ChatBody", body)
