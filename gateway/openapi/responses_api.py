"""The Responses routes that take a prompt."""

from __future__ import annotations

from typing import Any

from gateway.dialects.responses.encode import Shape, render
from gateway.dialects.responses.wire import ResponsesBody
from gateway.errors import OPENAI
from gateway.openapi import examples
from gateway.openapi.part import Part
from gateway.openapi.responses import (
    EXAMPLE_ID,
    JSON,
    OPENAI_LIMIT_HEADERS,
    OpenAIError,
    failures,
    json_answer,
)
from gateway.openapi.responses_answers import EVENTS, ResponseInputTokens, ResponseObject
from gateway.openapi.schemas import Schema, answered, ref, requested
from inference.errors import ErrorCode
from inference.events import Finished, FinishReason, Usage
from inference.fold import Answer
from inference.request import TextPart

_READ_FAILURES = (
    ErrorCode.INVALID_REQUEST,
    ErrorCode.PROMPT_TOO_LONG,
    ErrorCode.AUTHENTICATION,
    ErrorCode.PERMISSION,
    ErrorCode.NOT_FOUND,
    ErrorCode.MODEL_NOT_FOUND,
    ErrorCode.TOO_LARGE,
    ErrorCode.ENGINE_FAILED,
    ErrorCode.ENGINE_LOST,
    ErrorCode.INTERNAL,
    ErrorCode.NO_ENGINE,
    ErrorCode.UNAVAILABLE,
    ErrorCode.OVERLOADED,
    ErrorCode.TIMEOUT,
)
_FAILURES = (
    *_READ_FAILURES,
    ErrorCode.BALANCE_EXHAUSTED,
    ErrorCode.RATE_LIMITED,
    ErrorCode.SPEND_CAP,
    ErrorCode.RESOURCE_UNAVAILABLE,
    ErrorCode.CONFLICT,
)
QUESTION = "What is the capital of France?"
_ASKED: dict[str, Any] = {"model": examples.MODEL, "input": QUESTION, "max_output_tokens": 32}
ANSWER = Answer(
    parts=(TextPart("The capital of France is Paris."),),
    finished=Finished(
        reason=FinishReason.END,
        usage=Usage(prompt_tokens=37, cached_tokens=32, output_tokens=8),
    ),
)
SHAPE = Shape(
    id=EXAMPLE_ID,
    created_at_s=1_767_225_600,
    model=examples.MODEL,
    body=_ASKED,
    completed_at_s=1_767_225_601,
)
_CAPITAL = {
    "type": "object",
    "properties": {"capital": {"type": "string", "maxLength": 20}},
    "required": ["capital"],
    "additionalProperties": False,
}
_WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}},
        "required": ["city"],
    },
}


def _named(summary: str, **changes: Any) -> Schema:
    return {"summary": summary, "value": _ASKED | changes}


_EXAMPLES = {
    "text": _named("A question"),
    "stream": _named("An answer as it is generated", stream=True),
    "items": _named(
        "A conversation that is not kept",
        instructions="You answer in one sentence.",
        input=[
            {"role": "user", "content": "Hello!"},
            {"role": "assistant", "content": "Hello! How can I help you?"},
            {"role": "user", "content": QUESTION},
        ],
        store=False,
    ),
    "tool": _named(
        "A call that must be made",
        max_output_tokens=100,
        tools=[_WEATHER],
        tool_choice={"type": "function", "name": "get_weather"},
    ),
    "structured_output": _named(
        "An answer that matches a schema",
        max_output_tokens=100,
        text={"format": {"type": "json_schema", "name": "capital", "schema": _CAPITAL}},
    ),
    "flex": _named("At a lower price, when there is room", service_tier="flex"),
}


def part() -> Part:
    """Return what the document says about these routes."""
    return Part(
        name="Responses",
        description="OpenAI's Responses API.",
        paths={
            "/v1/responses": {"post": _create()},
            "/v1/responses/input_tokens": {"post": _count()},
        },
        models=(
            *requested(ResponsesBody),
            *answered(ResponseObject, ResponseInputTokens, OpenAIError, *EVENTS),
        ),
    )


def _create() -> Schema:
    whole = json_answer(
        "The response: JSON, or server-sent events if `stream` is true.",
        ref(ResponseObject),
        render(SHAPE, "completed", answer=ANSWER),
        "tandem-ignored-fields",
        "tandem-fallback",
        *OPENAI_LIMIT_HEADERS,
        envelope=OPENAI,
    )
    whole["content"]["text/event-stream"] = {"schema": event_schema()}
    return {
        "operationId": "createResponse",
        "summary": "Ask a model, and be able to read and continue the answer later",
        "requestBody": _body(_EXAMPLES),
        "responses": {"200": whole, **failures(_FAILURES, OPENAI)},
    }


def _count() -> Schema:
    counted = json_answer(
        "The whole prompt's tokens.",
        ref(ResponseInputTokens),
        {"object": "response.input_tokens", "input_tokens": 37},
        "tandem-ignored-fields",
        envelope=OPENAI,
    )
    return {
        "operationId": "countResponseInputTokens",
        "summary": "Count the tokens of a prompt",
        "requestBody": _body({"text": _named("A question")}),
        "responses": {"200": counted, **failures(_READ_FAILURES, OPENAI)},
    }


def _body(shown: Schema) -> Schema:
    content = {JSON: {"schema": ref(ResponsesBody), "examples": shown}}
    return {"required": True, "content": content}


def event_schema() -> Schema:
    """Return the schema of one event, the form that OpenAPI 3.2 calls `itemSchema`."""
    data = {
        "type": "string",
        "contentMediaType": JSON,
        "contentSchema": {"anyOf": [ref(event) for event in EVENTS]},
    }
    return {
        "type": "object",
        "description": "One event of the stream; `event` is the data's `type`. While nothing "
        "comes there are comment lines.",
        "properties": {"event": {"type": "string"}, "data": data},
        "required": ["event", "data"],
    }
