"""What upstreams' errors mean."""

from __future__ import annotations

import pytest

from inference.backends.upstream_faults import (
    answered,
    fault,
    garbled,
    silent,
    unreachable,
)
from inference.errors import ErrorCode

OPENAI_TOO_LONG = (
    "This model's maximum context length is 2048 tokens. However, your messages resulted in "
    "3000 tokens. Please reduce the length of the messages."
)
OPENAI_TOO_MUCH = (
    "This model's maximum context length is 2048 tokens. However, you requested 2100 tokens "
    "(100 in the messages, 2000 in the completion)."
)
VLLM_TOO_LONG = (
    "This model's maximum context length is 2048 tokens. However, you requested 16 output tokens "
    "and your prompt contains at least 2033 input tokens, for a total of at least 2049 tokens."
)


@pytest.mark.parametrize(
    ("status", "code", "passing", "down"),
    [
        (307, ErrorCode.UNAVAILABLE, False, False),
        (400, ErrorCode.INVALID_REQUEST, False, False),
        (401, ErrorCode.UNAVAILABLE, False, False),
        (402, ErrorCode.UNAVAILABLE, False, False),
        (403, ErrorCode.UNAVAILABLE, False, False),
        (404, ErrorCode.UNAVAILABLE, False, False),
        (408, ErrorCode.TIMEOUT, True, False),
        (409, ErrorCode.UNAVAILABLE, True, False),
        (413, ErrorCode.TOO_LARGE, False, False),
        (422, ErrorCode.INVALID_REQUEST, False, False),
        (429, ErrorCode.RESOURCE_UNAVAILABLE, True, False),
        (500, ErrorCode.UNAVAILABLE, True, True),
        (503, ErrorCode.OVERLOADED, True, True),
        (504, ErrorCode.TIMEOUT, True, True),
        (529, ErrorCode.OVERLOADED, True, True),
    ],
)
def test_each_status_means_one_thing(
    status: int, code: ErrorCode, passing: bool, down: bool
) -> None:
    error = fault(answered(status, {"error": {"message": "No."}}, {}))

    assert (error.code, error.passing, error.down) == (code, passing, down)


def test_a_failure_is_told_with_status_request_and_message() -> None:
    body = {"type": "error", "error": {"type": "api_error", "message": "Internal error."}}

    error = fault(answered(500, body, {"request-id": "req_1"}))

    assert error.message == "the upstream answered 500, request req_1: Internal error."


@pytest.mark.parametrize("status", [401, 402, 403])
def test_what_is_said_of_the_operators_account_is_not_passed_on(status: int) -> None:
    body = {"error": {"message": "Incorrect API key provided: sk-1234."}}

    error = fault(answered(status, body, {"x-request-id": "req_1"}))

    assert "sk-1234" not in error.message
    assert f"{status}, request req_1" in error.message


def test_a_bad_request_is_told_word_for_word() -> None:
    error = fault(answered(400, {"error": {"message": "temperature: too hot"}}, {}))

    assert error.message == "temperature: too hot"


def test_a_bad_request_without_a_word_is_told_too() -> None:
    assert "did not say why" in fault(answered(400, None, {})).message


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("overloaded_error", ErrorCode.OVERLOADED),
        ("rate_limit_error", ErrorCode.RESOURCE_UNAVAILABLE),
        ("invalid_request_error", ErrorCode.INVALID_REQUEST),
        ("something_new", ErrorCode.UNAVAILABLE),
    ],
)
def test_an_error_in_a_stream_is_told_by_its_type(kind: str, code: ErrorCode) -> None:
    body = {"type": "error", "error": {"type": kind, "message": "No."}}

    assert fault(answered(200, body, {})).code is code


@pytest.mark.parametrize("code", [429, "429"])
def test_an_error_in_a_stream_may_have_a_status_as_its_code(code: object) -> None:
    error = fault(answered(200, {"message": "No.", "code": code}, {}))

    assert error.code is ErrorCode.RESOURCE_UNAVAILABLE


@pytest.mark.parametrize("body", ["<html>Bad gateway</html>", None, [], {"detail": "x"}, 5])
def test_bodies_of_any_shape_are_read(body: object) -> None:
    assert fault(answered(502, body, {})).code is ErrorCode.UNAVAILABLE


def test_what_is_said_of_the_account_is_kept_back() -> None:
    error = fault(answered(401, {"error": {"message": "Incorrect API key: sk-1"}}, {}))

    assert "sk-1" not in error.message
    assert error.kept_back == "Incorrect API key: sk-1"


@pytest.mark.parametrize(
    ("value", "expected"), [("3", 3), ("0.5", 0.5), ("-1", None), ("nan", None), ("Mon", None)]
)
def test_when_to_try_again_is_read(value: str, expected: float | None) -> None:
    assert fault(answered(429, None, {"retry-after": value})).retry_after_s == expected


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("prompt is too long: 9 tokens > 5 maximum", "prompt is too long: 9 tokens > 5 maximum"),
        (OPENAI_TOO_LONG, "prompt is too long: 3000 tokens > 2048 maximum"),
    ],
)
def test_a_prompt_that_is_too_long_is_told_in_the_words_that_clients_look_for(
    message: str, told: str
) -> None:
    error = fault(answered(400, {"error": {"message": message}}, {}))

    assert error.code is ErrorCode.PROMPT_TOO_LONG
    assert error.message == told


@pytest.mark.parametrize("message", [OPENAI_TOO_MUCH, VLLM_TOO_LONG])
def test_too_many_tokens_beside_a_prompt_that_fits_are_told_apart(message: str) -> None:
    error = fault(answered(400, {"error": {"message": message}}, {}))

    assert error.code is ErrorCode.INVALID_REQUEST
    assert error.message.startswith("input length and `max_tokens` exceed context limit")


def test_a_context_that_is_exceeded_by_an_unknown_number_is_told_as_such() -> None:
    body = {"error": {"code": "context_length_exceeded", "message": "Too long."}}

    error = fault(answered(400, body, {}))

    assert error.code is ErrorCode.PROMPT_TOO_LONG
    assert error.message == "prompt is too long: Too long."


def test_what_is_no_answer_counts_as_a_failure() -> None:
    for error in (unreachable("no route"), silent(3), garbled("no JSON")):
        assert error.down
    assert silent(3).code is ErrorCode.TIMEOUT
    assert not silent(3).passing
    assert unreachable("no route").passing
