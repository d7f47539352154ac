"""An upstream's error is answered as it came."""

from __future__ import annotations

import pytest

from gateway.errors import ANTHROPIC, OPENAI, error_body, error_headers
from inference.errors import ErrorCode
from inference.events import RawAnswer
from inference.raw_error import RawError
from tests.raw_messages import ERROR

ANSWER = RawAnswer(body=ERROR, status=418, headers=(("retry-after", "7"),))


def error(code: ErrorCode = ErrorCode.UNAVAILABLE) -> RawError:
    return RawError(code, "as the log has it", ANSWER)


def test_status_and_body_are_the_upstreams() -> None:
    assert ANTHROPIC.status(error()) == 418
    assert ANTHROPIC.body(error(), "req_1") == error_body(error(), "req_1") == ERROR


def test_its_headers_come_along_and_none_of_ours_gainsays_them() -> None:
    assert error_headers(error(ErrorCode.TIMEOUT)) == [
        (b"content-type", b"application/json"),
        (b"retry-after", b"7"),
    ]


@pytest.mark.parametrize("value", ["\u65e5\u672c", "\xe9", "a\r\nset-cookie: b", "\ud800", "\x00"])
def test_a_header_that_cannot_be_sent_is_left_out(value: str) -> None:
    headers = (("tandem-upstream-request-id", value), ("retry-after", "7"))
    answer = RawAnswer(body=ERROR, status=418, headers=headers)
    assert error_headers(RawError(ErrorCode.TIMEOUT, "", answer)) == [
        (b"content-type", b"application/json"),
        (b"retry-after", b"7"),
    ]


def test_another_dialect_says_it_in_its_own_way() -> None:
    assert OPENAI.status(error()) == 503
    assert b"as the log has it" in OPENAI.body(error(), "req_1")
