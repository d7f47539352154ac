"""The answers that operations share: their headers, and every error from the one table of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from pydantic import Field

from gateway.errors import ANTHROPIC, ERRORS, OPENAI, SHARED, Envelope
from gateway.openapi.schemas import AnswerModel, Schema, ref
from inference.errors import ErrorCode, TandemError

JSON = "application/json"
EXAMPLE_ID = "01a2283a-1e52-7683-90f3-916a0242d540"


class ErrorDetail(AnswerModel):
    """What went wrong."""

    type: Annotated[
        str,
        Field(json_schema_extra={"enum": sorted({row.anthropic_type for row in ERRORS.values()})}),
    ]
    message: str
    """Names the field that is wrong, by its dotted path."""


class Error(AnswerModel):
    """Every error has this form, also as the last event of a broken stream."""

    type: Literal["error"]
    error: ErrorDetail
    request_id: Annotated[str, Field(pattern="^req_")]
    status_code: int
    detail: str
    """The message once more."""
    extra: dict[str, Any]


class OpenAIErrorDetail(AnswerModel):
    """What went wrong."""

    message: str
    """Names the field that is wrong, by its path."""
    type: Annotated[
        str,
        Field(json_schema_extra={"enum": sorted({row.openai_type for row in ERRORS.values()})}),
    ]
    param: str | None
    """The path of the field that is wrong."""
    code: str | None


class OpenAIError(AnswerModel):
    """Every error on OpenAI's routes has this form, also as the last chunk of a broken stream."""

    error: OpenAIErrorDetail


class SharedError(OpenAIError):
    """Every error on the routes that OpenAI's and sference's clients share has this form."""

    status_code: int
    detail: str
    """The message once more."""
    extra: dict[str, Any]


_SCHEMAS = {ANTHROPIC: ref(Error), OPENAI: ref(OpenAIError), SHARED: ref(SharedError)}


class _Case(NamedTuple):
    when: str
    example: str


_CASES = {
    ErrorCode.INVALID_REQUEST: _Case(
        "The request is wrong; the message names the field.", "max_tokens: Field required"
    ),
    ErrorCode.PROMPT_TOO_LONG: _Case(
        "The prompt does not fit the model's context.",
        "prompt is too long: 5000 tokens > 2048 maximum",
    ),
    ErrorCode.AUTHENTICATION: _Case(
        "There is no key, or it is wrong, revoked or expired.", "invalid x-api-key"
    ),
    ErrorCode.BALANCE_EXHAUSTED: _Case(
        "The team's balance does not cover the request.", "the team's balance is used up"
    ),
    ErrorCode.SPEND_CAP: _Case(
        "The team's spend cap is reached.",
        "spend limit reached (daily; resets 2026-08-08 00:00 UTC)",
    ),
    ErrorCode.RATE_LIMITED: _Case(
        "A rate limit of the key or of its team is reached.",
        "rate limit reached: this key is allowed 60 requests per minute",
    ),
    ErrorCode.RESOURCE_UNAVAILABLE: _Case(
        "No engine had a place for a flex request in time. It costs nothing.",
        "Resource Unavailable: no engine of 'm' had a place for this flex request within 60 s",
    ),
    ErrorCode.PERMISSION: _Case(
        "The key may not do this, or not use this model.",
        "this API key may not use the model 'm'",
    ),
    ErrorCode.NOT_FOUND: _Case(
        "What the request names is not there, or another team's.",
        f"Response with id 'resp_{EXAMPLE_ID}' not found.",
    ),
    ErrorCode.MODEL_NOT_FOUND: _Case("There is no such model.", "model 'gpt-0' not found"),
    ErrorCode.CONFLICT: _Case(
        "What the request names is in a state that forbids it.", "the stream is archived"
    ),
    ErrorCode.TOO_LARGE: _Case(
        "The body is too large.",
        "the request body has 40000000 bytes, more than the maximum of 33554432",
    ),
    ErrorCode.ENGINE_FAILED: _Case("The engine failed.", "the engine failed"),
    ErrorCode.ENGINE_LOST: _Case(
        "The engine stopped before the answer was complete.",
        "the engine stopped before the answer was complete",
    ),
    ErrorCode.INTERNAL: _Case(
        "Tandem itself failed.", "an internal error occurred; it has been logged"
    ),
    ErrorCode.NO_ENGINE: _Case(
        "No engine serves the model right now.",
        "model 'm' cannot be served right now: its engine is still loading",
    ),
    ErrorCode.UNAVAILABLE: _Case(
        "The database or the queue cannot be reached.",
        "the request queue cannot be reached right now",
    ),
    ErrorCode.TIMEOUT: _Case(
        "The answer was not finished in time; the work is cancelled.",
        "the request was not finished within 600 s",
    ),
    ErrorCode.OVERLOADED: _Case(
        "Too many requests wait already.",
        "model 'm' is overloaded: 256 requests are waiting already",
    ),
}

# Errors that say when to try again.
_SAY_WHEN = frozenset(
    {
        ErrorCode.NO_ENGINE,
        ErrorCode.UNAVAILABLE,
        ErrorCode.OVERLOADED,
        ErrorCode.SPEND_CAP,
        ErrorCode.RATE_LIMITED,
    }
)

HEADERS: dict[str, Schema] = {
    "request-id": {
        "description": "Names the request in logs and to the operator.",
        "required": True,
        "schema": {"type": "string", "pattern": "^req_", "examples": [f"req_{EXAMPLE_ID}"]},
    },
    "x-request-id": {
        "description": "The same, on OpenAI's routes.",
        "required": True,
        "schema": {"type": "string", "pattern": "^req_", "examples": [f"req_{EXAMPLE_ID}"]},
    },
    "retry-after": {
        "description": "Seconds to wait before trying again, where that is known.",
        "schema": {"type": "integer", "minimum": 0},
    },
    "x-should-retry": {
        "description": "Whether trying the same request again may help. SDKs follow it.",
        "schema": {"enum": ["true", "false"]},
    },
    "tandem-fallback": {
        "description": "The model that has answered in the place of the one that was asked for, "
        "because that could not.",
        "schema": {"type": "string", "examples": ["vendor/Other-1"]},
    },
    "tandem-ignored-fields": {
        "description": "The fields and tools that had no effect: percent-encoded, separated by "
        "commas, and cut if there are many.",
        "schema": {"type": "string", "examples": ["container, tools.0"]},
    },
}
_LIMITED = {
    "requests": "requests per minute",
    "input-tokens": "input tokens per minute",
    "output-tokens": "output tokens per minute",
    "tokens": "input or output tokens per minute, whichever has less left",
}


def _limit_headers() -> dict[str, Schema]:
    number = {"type": "integer", "minimum": 0}
    when = {"type": "string", "format": "date-time"}
    made: dict[str, Schema] = {}
    for name, meaning in _LIMITED.items():
        start = f"anthropic-ratelimit-{name}"
        made[f"{start}-limit"] = {"description": f"The limit, in {meaning}.", "schema": number}
        made[f"{start}-remaining"] = {"description": f"Left, in {meaning}.", "schema": number}
        made[f"{start}-reset"] = {"description": "When all of it is there again.", "schema": when}
    return made


def _openai_limit_headers() -> dict[str, Schema]:
    number = {"type": "integer", "minimum": 0}
    duration = {"type": "string", "examples": ["6m0s"]}
    made: dict[str, Schema] = {}
    for name in ("requests", "tokens"):
        meaning = _LIMITED[name]
        limit = {"description": f"The limit, in {meaning}.", "schema": number}
        made[f"x-ratelimit-limit-{name}"] = limit
        left = {"description": f"Left, in {meaning}.", "schema": number}
        made[f"x-ratelimit-remaining-{name}"] = left
        whole = {"description": "After how long all of it is there again.", "schema": duration}
        made[f"x-ratelimit-reset-{name}"] = whole
    return made


LIMIT_HEADERS = tuple(_limit_headers())
OPENAI_LIMIT_HEADERS = tuple(_openai_limit_headers())
HEADERS |= _limit_headers() | _openai_limit_headers()


def headers(*names: str) -> Schema:
    """Return references to some of `HEADERS`."""
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def json_answer(
    description: str,
    schema: Schema,
    example: Any,
    *more_headers: str,
    envelope: Envelope = ANTHROPIC,
) -> Schema:
    """Return a JSON answer with an example of it."""
    return {
        "description": description,
        "headers": headers(_identity(envelope), *more_headers),
        "content": {JSON: {"schema": schema, "example": example}},
    }


def failures(codes: Iterable[ErrorCode], envelope: Envelope = ANTHROPIC) -> dict[str, Schema]:
    """Return the answers that these codes have in a dialect, by status."""
    by_status = defaultdict(list)
    for code in codes:
        by_status[envelope.status(_error(code))].append(code)
    return {str(status): _failure(by_status[status], envelope) for status in sorted(by_status)}


def _failure(codes: list[ErrorCode], envelope: Envelope) -> Schema:
    names = [_identity(envelope)]
    if _SAY_WHEN.intersection(codes):
        names.append("retry-after")
    if any(ERRORS[code].retry is not None for code in codes):
        names.append("x-should-retry")
    examples = {
        code.value: {"summary": _CASES[code].when, "value": _body(code, envelope)} for code in codes
    }
    return {
        "description": " ".join(_CASES[code].when for code in codes),
        "headers": headers(*names),
        "content": {JSON: {"schema": _SCHEMAS[envelope], "examples": examples}},
    }


def _identity(envelope: Envelope) -> str:
    return envelope.identity(EXAMPLE_ID)[0].decode()


def _error(code: ErrorCode) -> TandemError:
    return TandemError(code, _CASES[code].example)


def _body(code: ErrorCode, envelope: Envelope) -> Any:
    return msgspec.json.decode(envelope.body(_error(code), f"req_{EXAMPLE_ID}"))
