"""What is said of failures."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from gateway.admin.screens.reasons import End, end_of, explain, reason_of_row, row_says
from inference.errors import ErrorCode
from inference.transport.records import Ending
from jobs.models import RequestRecord
from tests.unit.gateway.admin.screens.rows import KEY_ID, NOON

# Nothing that has a request's record ends so.
_REFUSED_BEFORE = {
    ErrorCode.AUTHENTICATION,
    ErrorCode.NOT_FOUND,
    ErrorCode.METHOD_NOT_ALLOWED,
    ErrorCode.CONFLICT,
}
# Those that our own queue, and an upstream, both refuse with.
_OF_BOTH = (
    ErrorCode.OVERLOADED,
    ErrorCode.RESOURCE_UNAVAILABLE,
    ErrorCode.UNAVAILABLE,
    ErrorCode.TIMEOUT,
)
_OUR_OWN = ("max_waiting", "FLEX_WAIT_S", "Redis", "REQUEST_TIMEOUT_S")


def record(**fields: Any) -> RequestRecord:
    known: dict[str, Any] = {
        "ending": "failed",
        "lane": "realtime",
        "created_at": NOON,
        "deadline_at": NOON + timedelta(seconds=600),
        "closed_at": NOON + timedelta(seconds=60),
    }
    return RequestRecord(**(known | fields))


@pytest.mark.parametrize("code", [code for code in ErrorCode if code not in _REFUSED_BEFORE])
@pytest.mark.parametrize("was_taken", [True, False])
@pytest.mark.parametrize("is_work", [True, False])
def test_every_failure_of_a_request_is_explained(
    code: ErrorCode, was_taken: bool, is_work: bool
) -> None:
    assert explain(End(Ending.FAILED, code, was_taken=was_taken, is_work=is_work))


@pytest.mark.parametrize("ending", [Ending.GATEWAY_LOST, Ending.ENGINE_LOST, Ending.TIMEOUT])
def test_what_its_process_could_not_say_is_explained(ending: Ending) -> None:
    assert explain(End(ending.value, ""))


def test_what_ended_as_it_should_needs_no_explanation() -> None:
    assert explain(End("finished", "end")) == ""
    assert explain(End("", "")) == ""


def test_a_cut_answer_is_explained() -> None:
    assert "max_tokens" in explain(End("finished", "length"))


@pytest.mark.parametrize("code", _OF_BOTH)
def test_what_an_upstream_refuses_is_not_put_down_to_our_own_queues_and_limits(
    code: ErrorCode,
) -> None:
    own = explain(end_of(record(detail=code)))
    upstream = explain(end_of(record(detail=code, engine_id=KEY_ID)))
    assert any(word in own for word in _OUR_OWN)
    assert "upstream" not in own
    assert "upstream" in upstream
    assert "set a fallback model" in upstream
    assert not any(word in upstream for word in _OUR_OWN)


def test_what_an_engine_had_until_its_deadline_took_too_long_here() -> None:
    late = record(
        ending="timeout",
        detail="timeout",
        engine_id=KEY_ID,
        closed_at=NOON + timedelta(seconds=600, milliseconds=1),
    )
    assert "REQUEST_TIMEOUT_S" in explain(end_of(late))


def test_whoever_cancelled_is_told_apart_from_callers_who_left() -> None:
    assert "caller left" in explain(end_of(record(ending="cancelled", detail="cancelled")))
    for ending in ("failed", "cancelled"):
        row = record(ending=ending, detail="cancelled", lane="batch", engine_id=KEY_ID)
        assert explain(end_of(row)) == "It was cancelled before it had ended."


def test_work_that_can_wait_is_not_sent_to_a_fallback() -> None:
    row = record(detail="overloaded", lane="batch", engine_id=KEY_ID)
    assert explain(end_of(row)).endswith("nothing here was. Try again later.")


@pytest.mark.parametrize(
    ("outcome", "code", "message", "said"),
    [
        ("failed", "invalid_request", "temperature", "invalid_request: temperature"),
        ("cancelled", "", "", "cancelled"),
        ("cancelled", "cancelled", "", "cancelled"),
        ("expired", "", "", "expired"),
        ("completed", "", "", ""),
        ("", "", "", ""),
    ],
)
def test_a_row_without_an_answer_has_a_reason(
    outcome: str, code: str, message: str, said: str
) -> None:
    assert row_says(outcome, code, message) == said
    assert bool(reason_of_row(outcome, code)) == bool(said)
