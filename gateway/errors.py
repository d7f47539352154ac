"""How each error code is answered: the one table, and the body and headers made from it."""

from __future__ import annotations

import logging
import math
from typing import NamedTuple

import msgspec

from inference.errors import ErrorCode, TandemError

Header = tuple[bytes, bytes]

MAX_MESSAGE_CHARS = 2000
"""Messages repeat what callers sent, which may be megabytes."""


class ErrorRow(NamedTuple):
    """What one error code means to a caller and to the log.

    `retry` overrules the rule that SDKs follow by themselves (408, 409, 429 and 5xx are tried
    again): True and False are told to them, None leaves it to them.
    """

    status: int
    anthropic_type: str
    log_level: int
    retry: bool | None = None


# Errors that a caller causes are not news; those that an operator should look at are.
ERRORS: dict[ErrorCode, ErrorRow] = {
    ErrorCode.INVALID_REQUEST: ErrorRow(400, "invalid_request_error", logging.INFO),
    ErrorCode.PROMPT_TOO_LONG: ErrorRow(400, "invalid_request_error", logging.INFO),
    ErrorCode.AUTHENTICATION: ErrorRow(401, "authentication_error", logging.INFO),
    # Only money helps, not trying again.
    ErrorCode.BALANCE_EXHAUSTED: ErrorRow(402, "billing_error", logging.INFO, retry=False),
    ErrorCode.SPEND_CAP: ErrorRow(429, "billing_error", logging.INFO, retry=False),
    ErrorCode.RATE_LIMITED: ErrorRow(429, "rate_limit_error", logging.INFO),
    ErrorCode.PERMISSION: ErrorRow(403, "permission_error", logging.INFO),
    ErrorCode.NOT_FOUND: ErrorRow(404, "not_found_error", logging.INFO),
    ErrorCode.MODEL_NOT_FOUND: ErrorRow(404, "not_found_error", logging.INFO),
    ErrorCode.METHOD_NOT_ALLOWED: ErrorRow(405, "invalid_request_error", logging.INFO),
    ErrorCode.TOO_LARGE: ErrorRow(413, "request_too_large", logging.INFO),
    # Whoever would read this answer has hung up; the status is for the log.
    ErrorCode.CANCELLED: ErrorRow(499, "api_error", logging.INFO),
    # 500 and not 502: it is Anthropic's own status for api_error, SDKs try both again, and
    # proxies in front replace a 502 by a page of theirs.
    ErrorCode.ENGINE_FAILED: ErrorRow(500, "api_error", logging.ERROR),
    ErrorCode.ENGINE_LOST: ErrorRow(500, "api_error", logging.WARNING, retry=True),
    ErrorCode.INTERNAL: ErrorRow(500, "api_error", logging.ERROR),
    ErrorCode.NO_ENGINE: ErrorRow(503, "api_error", logging.WARNING, retry=True),
    ErrorCode.UNAVAILABLE: ErrorRow(503, "api_error", logging.ERROR, retry=True),
    # The whole wait is used up: the same request again would only take as long again.
    ErrorCode.TIMEOUT: ErrorRow(504, "timeout_error", logging.WARNING, retry=False),
    ErrorCode.OVERLOADED: ErrorRow(529, "overloaded_error", logging.WARNING, retry=True),
}


def error_body(error: TandemError, request_id: str) -> bytes:
    """Return the JSON body: Anthropic's envelope, with the keys that sference's clients read."""
    row = ERRORS[error.code]
    message = error.message
    if len(message) > MAX_MESSAGE_CHARS:
        message = f"{message[:MAX_MESSAGE_CHARS]} ..."
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


def error_headers(error: TandemError, request_id: str) -> list[Header]:
    """Return the headers that go with `error_body`."""
    headers = [(b"content-type", b"application/json"), (b"request-id", request_id.encode("ascii"))]
    if error.retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % math.ceil(error.retry_after_s)))
    retry = ERRORS[error.code].retry
    if retry is not None:
        headers.append((b"x-should-retry", b"true" if retry else b"false"))
    return headers
