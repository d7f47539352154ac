"""The Chat route."""

from __future__ import annotations

from typing import Any

from msgspec.json import decode

from gateway.dialects.chat.encode import Shape, completion
from gateway.dialects.chat.wire import ChatBody
from gateway.errors import OPENAI
from gateway.openapi import examples
from gateway.openapi.chat_answers import ChatCompletion, ChatCompletionChunk
from gateway.openapi.part import Part
from gateway.openapi.responses import (
    EXAMPLE_ID,
    JSON,
    OPENAI_LIMIT_HEADERS,
    OpenAIError,
    failures,
    json_answer,
)
from gateway.openapi.schemas import Schema, answered, ref, requested
from inference.errors import ErrorCode
from inference.events import Finished, FinishReason, Usage
from inference.fold import Answer
from inference.request import TextPart

_FAILURES = (
    ErrorCode.INVALID_REQUEST,
    ErrorCode.PROMPT_TOO_LONG,
    ErrorCode.AUTHENTICATION,
    ErrorCode.BALANCE_EXHAUSTED,
    ErrorCode.PERMISSION,
    ErrorCode.MODEL_NOT_FOUND,
    ErrorCode.TOO_LARGE,
    ErrorCode.RATE_LIMITED,
    ErrorCode.SPEND_CAP,
    ErrorCode.RESOURCE_UNAVAILABLE,
    ErrorCode.ENGINE_FAILED,
    ErrorCode.ENGINE_LOST,
    ErrorCode.INTERNAL,
    ErrorCode.NO_ENGINE,
    ErrorCode.UNAVAILABLE,
    ErrorCode.OVERLOADED,
    ErrorCode.TIMEOUT,
)
_ANSWER = Answer(
    parts=(TextPart("The capital of France is Paris."),),
    finished=Finished(
        reason=FinishReason.END,
        usage=Usage(prompt_tokens=37, cached_tokens=32, output_tokens=8),
    ),
)
_SHAPE = Shape(
    completion_id=f"chatcmpl-{EXAMPLE_ID}", model=examples.MODEL, created_s=1_767_225_600
)
_QUESTION = {"role": "user", "content": "What is the capital of France?"}
_CAPITAL = {
    "type": "object",
    "properties": {"capital": {"type": "string", "maxLength": 20}},
    "required": ["capital"],
    "additionalProperties": False,
}
_WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 20}},
            "required": ["city"],
        },
    },
}


def _named(summary: str, **changes: Any) -> Schema:
    body = {"model": examples.MODEL, "max_tokens": 32, "messages": [_QUESTION]}
    return {"summary": summary, "value": body | changes}


_EXAMPLES = {
    "text": _named("A question"),
    "stream": _named(
        "An answer as it is generated, and its token counts",
        stream=True,
        stream_options={"include_usage": True},
    ),
    "choices": _named("Two answers, and how likely they were", n=2, logprobs=True, seed=1),
    "tool": _named(
        "A call that must be made",
        max_tokens=100,
        tools=[_WEATHER],
        tool_choice={"type": "function", "function": {"name": "get_weather"}},
    ),
    "structured_output": _named(
        "An answer that matches a schema",
        max_tokens=100,
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "capital", "schema": _CAPITAL},
        },
    ),
    "flex": _named("At a lower price, when there is room", service_tier="flex"),
}


def part() -> Part:
    """Return what the document says about this route."""
    return Part(
        name="Chat",
        description="OpenAI's Chat Completions API.",
        paths={"/v1/chat/completions": {"post": _create()}},
        models=(
            *requested(ChatBody),
            *answered(ChatCompletion, ChatCompletionChunk, OpenAIError),
        ),
    )


def _create() -> Schema:
    whole = json_answer(
        "The answers: JSON, or server-sent events if `stream` is true.",
        ref(ChatCompletion),
        decode(completion([_ANSWER], _SHAPE)),
        "tandem-ignored-fields",
        "tandem-fallback",
        *OPENAI_LIMIT_HEADERS,
        envelope=OPENAI,
    )
    whole["content"]["text/event-stream"] = {"schema": _event()}
    content = {JSON: {"schema": ref(ChatBody), "examples": _EXAMPLES}}
    return {
        "operationId": "createChatCompletion",
        "summary": "Ask a model",
        "requestBody": {"required": True, "content": content},
        "responses": {"200": whole, **failures(_FAILURES, OPENAI)},
    }


def _event() -> Schema:
    """Return the schema of one event, the form that OpenAPI 3.2 calls `itemSchema`."""
    data = {
        "type": "string",
        "contentMediaType": JSON,
        "contentSchema": {"anyOf": [ref(ChatCompletionChunk), ref(OpenAIError)]},
    }
    return {
        "type": "object",
        "description": "One event of the stream. The last one of a stream that went well is "
        "`[DONE]`, which is no JSON. While nothing comes there are comment lines.",
        "properties": {"data": data},
        "required": ["data"],
    }
