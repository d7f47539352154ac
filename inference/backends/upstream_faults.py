"""What an upstream's error means here. Pure.

What is wrong with the request is the caller's to know, in the upstream's words. What is wrong with
the operator's account is not: such messages name keys.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from inference.backends.upstream_health import UpstreamError
from inference.errors import ErrorCode

# What an error inside a stream, whose status was 200, would have had as its status.
_STATUSES = {
    "invalid_request_error": 400,
    "context_length_exceeded": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "insufficient_quota": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
}
_ACCOUNT = (401, 402, 403)
_TIMEOUTS = (408, 504)
_OVERLOADS = (503, 529)
_TOO_LONG = re.compile(r"prompt is too long: \d+ tokens > \d+ maximum")
_CONTEXT = re.compile(r"maximum context length (?:is|of) (\d+)")
_PROMPT = re.compile(
    r"(\d+) (?:tokens )?in the messages|resulted in (\d+) tokens"
    r"|(?:prompt contains|passed)(?: at least)? (\d+) input tokens"
)
# Only so much of a message is looked through: patterns take long with long ones. What is told of it
# is cut where secrets are taken out, since half of one would not be found.
_READ_CHARS = 1000


class Answered(NamedTuple):
    """An error that an upstream answered with; `kinds` are its type and code, as far as it says.

    `status` 200 is an error inside a stream.
    """

    status: int
    kinds: tuple[str, ...]
    message: str
    request_id: str | None = None
    retry_after_s: float | None = None


def answered(status: int, body: object, headers: Any) -> Answered:
    """Read an error's body, in whatever shape, and its headers, a mapping."""
    error = body
    while isinstance(error, dict) and "error" in error:
        error = error["error"]
    kinds: tuple[str, ...] = ()
    message = str(error or "")
    if isinstance(error, dict):
        kinds = tuple(str(error[key]) for key in ("code", "type") if error.get(key))
        message = str(error.get("message") or error.get("detail") or "")
    return Answered(
        status=status,
        kinds=kinds,
        message=message,
        request_id=headers.get("x-request-id") or headers.get("request-id"),
        retry_after_s=_seconds(headers.get("retry-after")),
    )


def fault(error: Answered) -> UpstreamError:
    """Return what the error means to the caller and to the next try."""
    status = _status(error)
    told = _told(error, status)
    match status:
        case _ if status in _ACCOUNT:
            text = f"the upstream refuses this service's account ({_named(error, status)})"
            refusal = UpstreamError(ErrorCode.UNAVAILABLE, text)
            refusal.kept_back = error.message
            return refusal
        case 404:
            return UpstreamError(ErrorCode.UNAVAILABLE, told)
        case 413:
            return UpstreamError(ErrorCode.TOO_LARGE, told)
        case 429:
            return UpstreamError(
                ErrorCode.RESOURCE_UNAVAILABLE,
                told,
                passing=True,
                retry_after_s=error.retry_after_s,
            )
        case _ if 400 <= status < 500 and status not in (408, 409):
            return _invalid(error)
    code = ErrorCode.UNAVAILABLE
    if status in _TIMEOUTS:
        code = ErrorCode.TIMEOUT
    elif status in _OVERLOADS:
        code = ErrorCode.OVERLOADED
    is_broken = status >= 500
    return UpstreamError(
        code,
        told,
        passing=is_broken or status in (408, 409),
        down=is_broken,
        retry_after_s=error.retry_after_s,
    )


def unreachable(reason: str, *, passing: bool = True) -> UpstreamError:
    """Return the error of an upstream that did not answer, or broke off."""
    return UpstreamError(
        ErrorCode.UNAVAILABLE,
        f"the upstream cannot be reached: {reason}",
        passing=passing,
        down=True,
    )


def silent(after_s: float, *, down: bool = True) -> UpstreamError:
    """Return the error of an upstream that said nothing for so long; not `down`, where it says
    nothing before its answer is whole."""
    text = f"the upstream was silent for {after_s:g} s"
    return UpstreamError(ErrorCode.TIMEOUT, text, down=down)


def garbled(reason: str) -> UpstreamError:
    """Return the error of an upstream that answered what its API does not know."""
    text = f"the upstream's answer cannot be read: {reason}"
    return UpstreamError(ErrorCode.UNAVAILABLE, text, passing=True, down=True)


def _status(error: Answered) -> int:
    if error.status >= 300:
        return error.status
    for kind in error.kinds:
        if kind in _STATUSES:
            return _STATUSES[kind]
        if kind.isdecimal() and 400 <= int(kind) < 600:
            return int(kind)
    return 500


def _told(error: Answered, status: int) -> str:
    message = f": {error.message}" if error.message else ""
    return f"the upstream answered {_named(error, status)}{message}"


def _named(error: Answered, status: int) -> str:
    request = f", request {error.request_id}" if error.request_id else ""
    return f"{status}{request}"


def _invalid(error: Answered) -> UpstreamError:
    """Return the error of a bad request: word for word, since clients look for some of them."""
    message = error.message or "the upstream refused the request and did not say why"
    read = message[:_READ_CHARS]
    if _TOO_LONG.search(read):
        return UpstreamError(ErrorCode.PROMPT_TOO_LONG, message)
    context = _CONTEXT.search(read)
    if context is None and "context_length_exceeded" not in error.kinds:
        return UpstreamError(ErrorCode.INVALID_REQUEST, message)
    prompt = _PROMPT.search(read)
    if context is None or prompt is None:
        return UpstreamError(ErrorCode.PROMPT_TOO_LONG, f"prompt is too long: {message}")
    limit = int(context[1])
    tokens = int(next(filter(None, prompt.groups())))
    if tokens < limit:
        text = f"input length and `max_tokens` exceed context limit: {message}"
        return UpstreamError(ErrorCode.INVALID_REQUEST, text)
    text = f"prompt is too long: {tokens} tokens > {limit} maximum"
    return UpstreamError(ErrorCode.PROMPT_TOO_LONG, text)


def _seconds(value: str | None) -> float | None:
    """Read a `retry-after` header; a date in it is not read."""
    try:
        seconds = float(value or "")
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None
