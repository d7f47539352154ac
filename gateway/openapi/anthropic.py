"""The routes of Anthropic's API."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec.json import decode

from gateway.dialects.anthropic.encode import message
from gateway.dialects.anthropic.models import (
    DEFAULT_PAGE,
    MAX_PAGE,
    STAGES,
    render_list,
    render_model,
)
from gateway.dialects.anthropic.wire import CountTokensBody, MessagesBody
from gateway.openapi import examples
from gateway.openapi.anthropic_answers import (
    Message,
    MessageStreamEvent,
    Model,
    ModelList,
    TokenCount,
)
from gateway.openapi.part import Part
from gateway.openapi.responses import EXAMPLE_ID, JSON, LIMIT_HEADERS, failures, json_answer
from gateway.openapi.schemas import Schema, answered, ref, requested
from inference.catalogue import ModelEntry
from inference.errors import ErrorCode
from inference.events import Finished, FinishReason, Usage
from inference.fold import Answer
from inference.request import TextPart

_KEYED = (
    ErrorCode.AUTHENTICATION,
    ErrorCode.TOO_LARGE,
    ErrorCode.INTERNAL,
    ErrorCode.UNAVAILABLE,
)
_PROMPTED = (
    ErrorCode.INVALID_REQUEST,
    ErrorCode.PROMPT_TOO_LONG,
    ErrorCode.MODEL_NOT_FOUND,
    ErrorCode.ENGINE_FAILED,
    ErrorCode.ENGINE_LOST,
    ErrorCode.NO_ENGINE,
    ErrorCode.TIMEOUT,
    ErrorCode.OVERLOADED,
    ErrorCode.PERMISSION,
    *_KEYED,
)
_PAID = (ErrorCode.BALANCE_EXHAUSTED, ErrorCode.SPEND_CAP, ErrorCode.RATE_LIMITED)

_ENTRY = ModelEntry(
    id=examples.MODEL,
    display_name="SmolLM2 135M",
    aliases=(),
    backend="vllm",
    weights=examples.MODEL,
    context_tokens=2048,
    capacity=16,
    max_waiting=256,
    workers=1,
    engine_options={},
    tool_parser="hermes",
    canary_prompt="",
    canary_expect="",
    created_at=datetime(2026, 1, 1, tzinfo=UTC),
)
_ANSWER = Answer(
    parts=(TextPart("The capital of France is Paris."),),
    finished=Finished(
        reason=FinishReason.END,
        usage=Usage(prompt_tokens=37, cached_tokens=32, output_tokens=8),
    ),
)


def part() -> Part:
    """Return what the document says about these routes."""
    return Part(
        name="Messages",
        description="Anthropic's Messages API.",
        paths={
            "/v1/messages": {"post": _messages()},
            "/v1/messages/count_tokens": {"post": _count_tokens()},
            "/v1/models": {"get": _models()},
            "/v1/models/{model}": {"get": _model()},
        },
        models=(
            *requested(MessagesBody, CountTokensBody),
            *answered(Message, MessageStreamEvent, TokenCount, Model, ModelList),
        ),
    )


def _messages() -> Schema:
    whole = json_answer(
        "The answer: JSON, or server-sent events if `stream` is true.",
        ref(Message),
        decode(message(_ANSWER, f"msg_{EXAMPLE_ID}", examples.MODEL)),
        "tandem-ignored-fields",
        "tandem-fallback",
        *LIMIT_HEADERS,
    )
    whole["content"]["text/event-stream"] = {"schema": _event()}
    return {
        "operationId": "createMessage",
        "summary": "Ask a model",
        "requestBody": _body(MessagesBody, examples.MESSAGES),
        "responses": {"200": whole, **failures((*_PROMPTED, *_PAID))},
    }


def _event() -> Schema:
    """Return the schema of one event, the form that OpenAPI 3.2 calls `itemSchema`."""
    data = {
        "type": "string",
        "contentMediaType": JSON,
        "contentSchema": ref(MessageStreamEvent),
    }
    return {
        "type": "object",
        "description": "One event of the stream, named by its data's `type`. While a request "
        "waits there may be comment lines.",
        "properties": {"event": {"type": "string"}, "data": data},
        "required": ["event", "data"],
    }


def _count_tokens() -> Schema:
    counted = json_answer(
        "The count.", ref(TokenCount), {"input_tokens": 37}, "tandem-ignored-fields"
    )
    return {
        "operationId": "countTokens",
        "summary": "Count a prompt's tokens",
        "description": "By the model's own tokenizer and template. It takes none of the engine's "
        "slots.",
        "requestBody": _body(CountTokensBody, examples.COUNT),
        "responses": {"200": counted, **failures(_PROMPTED)},
    }


def _body(model: type[MessagesBody], shown: Schema) -> Schema:
    return {"required": True, "content": {JSON: {"schema": ref(model), "examples": shown}}}


def _models() -> Schema:
    cursor = {"type": "string"}
    stages = {"type": "array", "items": {"type": "string", "enum": sorted(STAGES)}}
    limit = {"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": DEFAULT_PAGE}
    listed = json_answer("The models.", ref(ModelList), decode(render_list([_ENTRY], None)))
    return {
        "operationId": "listModels",
        "summary": "List the models",
        "description": "Every id, and every alias, that may be sent as `model`. All at once, "
        "unless an `anthropic-version` header asks for pages.",
        "parameters": [
            {
                "name": "anthropic-version",
                "in": "header",
                "description": "Any value: the list comes in pages.",
                "schema": {"type": "string"},
                "example": "2023-06-01",
            },
            _query("limit", "Length of a page.", limit),
            _query("after_id", "The page begins after this model.", cursor),
            _query(
                "before_id",
                "The page ends before this model. Cannot be combined with `after_id`.",
                cursor,
            ),
            _query("lifecycle", "Only models in these stages. Every model here is active.", stages),
        ],
        "responses": {"200": listed, **failures((ErrorCode.INVALID_REQUEST, *_KEYED))},
    }


def _query(name: str, description: str, schema: Schema) -> Schema:
    return {"name": name, "in": "query", "description": description, "schema": schema}


def _model() -> Schema:
    shown = json_answer("The model.", ref(Model), decode(render_model(_ENTRY)))
    return {
        "operationId": "retrieveModel",
        "summary": "Show a model",
        "parameters": [
            {
                "name": "model",
                "in": "path",
                "required": True,
                "description": "An id or an alias, in any case. A slash in it may stand as it is "
                "or percent-encoded.",
                "schema": {"type": "string", "minLength": 1},
                "example": examples.MODEL,
            }
        ],
        "responses": {
            "200": shown,
            **failures((ErrorCode.MODEL_NOT_FOUND, ErrorCode.PERMISSION, *_KEYED)),
        },
    }
