"""How each error code is answered."""

from __future__ import annotations

import json
import logging

import anthropic
import httpx2
import pytest

from gateway.errors import (
    ANTHROPIC,
    ERRORS,
    MAX_MESSAGE_CHARS,
    SHARED,
    error_body,
    error_headers,
)
from inference.errors import ErrorCode, TandemError

# The exception that the official SDK raises for each code.
SDK_EXCEPTIONS: dict[ErrorCode, type[anthropic.APIStatusError]] = {
    ErrorCode.INVALID_REQUEST: anthropic.BadRequestError,
    ErrorCode.PROMPT_TOO_LONG: anthropic.BadRequestError,
    ErrorCode.AUTHENTICATION: anthropic.AuthenticationError,
    ErrorCode.BALANCE_EXHAUSTED: anthropic.PaymentRequiredError,
    ErrorCode.SPEND_CAP: anthropic.RateLimitError,
    ErrorCode.RATE_LIMITED: anthropic.RateLimitError,
    ErrorCode.PERMISSION: anthropic.PermissionDeniedError,
    ErrorCode.NOT_FOUND: anthropic.NotFoundError,
    ErrorCode.MODEL_NOT_FOUND: anthropic.NotFoundError,
    ErrorCode.METHOD_NOT_ALLOWED: anthropic.APIStatusError,
    ErrorCode.CONFLICT: anthropic.ConflictError,
    ErrorCode.RESOURCE_UNAVAILABLE: anthropic.RateLimitError,
    ErrorCode.EXPIRED: anthropic.APIStatusError,
    ErrorCode.TOO_LARGE: anthropic.APIStatusError,
    ErrorCode.CANCELLED: anthropic.APIStatusError,
    ErrorCode.ENGINE_FAILED: anthropic.InternalServerError,
    ErrorCode.ENGINE_LOST: anthropic.InternalServerError,
    ErrorCode.INTERNAL: anthropic.InternalServerError,
    ErrorCode.NO_ENGINE: anthropic.APIStatusError,
    ErrorCode.UNAVAILABLE: anthropic.APIStatusError,
    ErrorCode.TIMEOUT: anthropic.APIStatusError,
    ErrorCode.OVERLOADED: anthropic.APIStatusError,
}


def ask(error: TandemError, *, retries: int) -> tuple[anthropic.APIStatusError, int]:
    """Let the SDK meet the error; return what it raised and how often it asked."""
    requests = 0

    def answer(_request: httpx2.Request) -> httpx2.Response:
        nonlocal requests
        requests += 1
        return httpx2.Response(
            ERRORS[error.code].status,
            headers=[*error_headers(error), ANTHROPIC.identity("req_1")],
            content=error_body(error, "req_1"),
        )

    transport = httpx2.MockTransport(answer)
    with (
        httpx2.Client(transport=transport) as http,
        anthropic.Anthropic(
            api_key="k", base_url="http://tandem", http_client=http, max_retries=retries
        ) as client,
        pytest.raises(anthropic.APIStatusError) as caught,
    ):
        client.messages.create(
            model="m", max_tokens=1, messages=[{"role": "user", "content": "hi"}]
        )
    return caught.value, requests


def test_it_has_a_row_for_every_code() -> None:
    assert set(ERRORS) == set(ErrorCode)


@pytest.mark.parametrize("code", ErrorCode)
def test_the_sdk_understands_every_error(code: ErrorCode) -> None:
    raised, _ = ask(TandemError(code, "what happened"), retries=0)
    assert isinstance(raised, SDK_EXCEPTIONS[code])
    assert raised.status_code == ERRORS[code].status
    assert raised.request_id == "req_1"
    assert raised.type == ERRORS[code].anthropic_type


def test_the_body_serves_both_kinds_of_clients() -> None:
    body = error_body(TandemError(ErrorCode.MODEL_NOT_FOUND, "model 'x' not found"), "req_1")
    assert json.loads(body) == {
        "type": "error",
        "error": {"type": "not_found_error", "message": "model 'x' not found"},
        "request_id": "req_1",
        "status_code": 404,
        "detail": "model 'x' not found",
        "extra": {},
    }


def test_where_openai_and_sference_share_a_route_the_body_serves_both() -> None:
    error = TandemError(ErrorCode.OVERLOADED, "busy")
    assert json.loads(SHARED.body(error, "req_1")) == {
        "error": {"message": "busy", "type": "server_error", "param": None, "code": "overloaded"},
        "status_code": 503,
        "detail": "busy",
        "extra": {},
    }


def test_the_wait_is_told_in_whole_seconds_and_never_too_short() -> None:
    headers = error_headers(TandemError(ErrorCode.OVERLOADED, "busy", retry_after_s=1.2))
    assert (b"retry-after", b"2") in headers
    assert (b"x-should-retry", b"true") in headers


def test_no_wait_is_told_where_none_helps() -> None:
    names = [name for name, _ in error_headers(TandemError(ErrorCode.INTERNAL, "bug"))]
    assert names == [b"content-type"]


def test_the_sdk_asks_again_when_an_engine_may_have_room() -> None:
    _, requests = ask(TandemError(ErrorCode.OVERLOADED, "busy", retry_after_s=0), retries=1)
    assert requests == 2


def test_the_sdk_does_not_repeat_a_request_that_used_up_its_whole_wait() -> None:
    _, requests = ask(TandemError(ErrorCode.TIMEOUT, "too slow"), retries=2)
    assert requests == 1


def test_what_a_caller_did_wrong_is_not_logged_as_trouble() -> None:
    for row in ERRORS.values():
        assert (row.log_level > logging.INFO) == (row.status >= 500)


def test_a_message_is_never_endless() -> None:
    body = error_body(TandemError(ErrorCode.NOT_FOUND, "x" * 1_000_000), "req_1")
    assert len(body) < 3 * MAX_MESSAGE_CHARS
