"""How each error code is answered: the one table, and the body and headers made from it."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import msgspec

from inference.errors import ErrorCode, TandemError
from inference.raw_error import RawError

Header = tuple[bytes, bytes]

MAX_MESSAGE_CHARS = 2000
"""Messages repeat what callers sent, which may be megabytes."""


class ErrorRow(NamedTuple):
    """What one error code means to a caller and to the log.

    `retry` overrules the rule that SDKs follow by themselves (408, 409, 429 and 5xx are tried
    again): True and False are told to them, None leaves it to them. `openai_status` is for the one
    status that OpenAI does not have.
    """

    status: int
    anthropic_type: str
    openai_type: str
    openai_code: str | None
    log_level: int
    retry: bool | None = None
    openai_status: int | None = None


_INVALID, _DENIED, _LIMITED = "invalid_request_error", "permission_error", "rate_limit_error"
_SERVER = "server_error"
_INFO, _WARNING, _ERROR = logging.INFO, logging.WARNING, logging.ERROR

# Errors that a caller causes are not news; those that an operator should look at are.
ERRORS: dict[ErrorCode, ErrorRow] = {
    ErrorCode.INVALID_REQUEST: ErrorRow(400, _INVALID, _INVALID, None, _INFO),
    ErrorCode.PROMPT_TOO_LONG: ErrorRow(400, _INVALID, _INVALID, "context_length_exceeded", _INFO),
    ErrorCode.AUTHENTICATION: ErrorRow(
        401, "authentication_error", _INVALID, "invalid_api_key", _INFO
    ),
    # Only money helps, not trying again.
    ErrorCode.BALANCE_EXHAUSTED: ErrorRow(
        402, "billing_error", "insufficient_quota", "insufficient_quota", _INFO, retry=False
    ),
    ErrorCode.SPEND_CAP: ErrorRow(
        429, "billing_error", "insufficient_quota", "billing_hard_limit_reached", _INFO, retry=False
    ),
    ErrorCode.RATE_LIMITED: ErrorRow(429, _LIMITED, _LIMITED, "rate_limit_exceeded", _INFO),
    ErrorCode.RESOURCE_UNAVAILABLE: ErrorRow(
        429, _LIMITED, _LIMITED, "resource_unavailable", _INFO
    ),
    ErrorCode.PERMISSION: ErrorRow(403, _DENIED, _DENIED, None, _INFO),
    ErrorCode.NOT_FOUND: ErrorRow(404, "not_found_error", _INVALID, "not_found", _INFO),
    ErrorCode.MODEL_NOT_FOUND: ErrorRow(404, "not_found_error", _INVALID, "model_not_found", _INFO),
    ErrorCode.METHOD_NOT_ALLOWED: ErrorRow(405, _INVALID, _INVALID, "method_not_supported", _INFO),
    ErrorCode.CONFLICT: ErrorRow(409, "conflict_error", _INVALID, "conflict", _INFO, retry=False),
    # Of a row of a batch; nobody is answered with it.
    ErrorCode.EXPIRED: ErrorRow(410, "not_found_error", _INVALID, "batch_expired", _INFO),
    ErrorCode.TOO_LARGE: ErrorRow(413, "request_too_large", _INVALID, "request_too_large", _INFO),
    # Whoever would read this answer has hung up; the status is for the log.
    ErrorCode.CANCELLED: ErrorRow(499, "api_error", _SERVER, "cancelled", _INFO),
    # 500 and not 502: it is Anthropic's own status for api_error, SDKs try both again, and
    # proxies in front replace a 502 by a page of theirs.
    ErrorCode.ENGINE_FAILED: ErrorRow(500, "api_error", _SERVER, "server_error", _ERROR),
    ErrorCode.ENGINE_LOST: ErrorRow(
        500, "api_error", _SERVER, "server_error", _WARNING, retry=True
    ),
    ErrorCode.INTERNAL: ErrorRow(500, "api_error", _SERVER, "server_error", _ERROR),
    ErrorCode.NO_ENGINE: ErrorRow(
        503, "api_error", _SERVER, "model_unavailable", _WARNING, retry=True
    ),
    ErrorCode.UNAVAILABLE: ErrorRow(503, "api_error", _SERVER, "unavailable", _ERROR, retry=True),
    # The whole wait is used up: the same request again would only take as long again.
    ErrorCode.TIMEOUT: ErrorRow(504, "timeout_error", _SERVER, "timeout", _WARNING, retry=False),
    ErrorCode.OVERLOADED: ErrorRow(
        529, "overloaded_error", _SERVER, "overloaded", _WARNING, retry=True, openai_status=503
    ),
}


def shown(error: TandemError) -> str:
    """Return the error's message, cut."""
    if len(error.message) > MAX_MESSAGE_CHARS:
        return f"{error.message[:MAX_MESSAGE_CHARS]} ..."
    return error.message


def error_body(error: TandemError, request_id: str) -> bytes:
    """Return the JSON body: Anthropic's envelope, with the keys that sference's clients read.

    What an upstream said that speaks this API is its own body.
    """
    if isinstance(error, RawError):
        return error.answer.body
    row = ERRORS[error.code]
    message = shown(error)
    return msgspec.json.encode(
        {
            "type": "error",
            "error": {"type": row.anthropic_type, "message": message},
            "request_id": request_id,
            "status_code": row.status,
            "detail": message,
            "extra": {},
        }
    )


def openai_error(error: TandemError) -> dict[str, str | None]:
    """Return the object that OpenAI's clients find under `error`, in answers and in streams."""
    row = ERRORS[error.code]
    return {
        "message": shown(error),
        "type": row.openai_type,
        "param": error.param,
        "code": error.reason or row.openai_code,
    }


def error_headers(error: TandemError) -> list[Header]:
    """Return the headers that go with an error's body, in every dialect."""
    headers = [(b"content-type", b"application/json")]
    if isinstance(error, RawError):
        return [*headers, *_passed_on(error)]
    if error.retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % math.ceil(error.retry_after_s)))
    retry = ERRORS[error.code].retry
    if retry is not None:
        headers.append((b"x-should-retry", b"true" if retry else b"false"))
    return headers


def _passed_on(error: RawError) -> Iterator[Header]:
    """Yield an upstream's headers. One that HTTP cannot have is left out, not the whole answer."""
    for name, value in error.answer.headers:
        if value.isascii() and value.isprintable():
            yield name.encode("ascii"), value.encode("ascii")


class Envelope(Protocol):
    """How a dialect says errors and names requests."""

    def status(self, error: TandemError) -> int:
        """Return the HTTP status."""

    def body(self, error: TandemError, request_id: str) -> bytes:
        """Return the JSON body."""

    def identity(self, request_id: str) -> Header:
        """Return the header that names the request."""


class _Anthropic:
    def status(self, error: TandemError) -> int:
        return error.answer.status if isinstance(error, RawError) else ERRORS[error.code].status

    def body(self, error: TandemError, request_id: str) -> bytes:
        return error_body(error, request_id)

    def identity(self, request_id: str) -> Header:
        return b"request-id", request_id.encode("ascii")


class _OpenAI:
    def status(self, error: TandemError) -> int:
        row = ERRORS[error.code]
        return row.openai_status or row.status

    def body(self, error: TandemError, request_id: str) -> bytes:
        return msgspec.json.encode({"error": openai_error(error)})

    def identity(self, request_id: str) -> Header:
        return b"x-request-id", request_id.encode("ascii")


class _Shared(_OpenAI):
    """OpenAI's envelope, with the keys that sference's clients read beside it."""

    def body(self, error: TandemError, request_id: str) -> bytes:
        return msgspec.json.encode(
            {
                "error": openai_error(error),
                "status_code": self.status(error),
                "detail": shown(error),
                "extra": {},
            }
        )


ANTHROPIC: Envelope = _Anthropic()
OPENAI: Envelope = _OpenAI()
SHARED: Envelope = _Shared()
