"""What is said of failures."""

from __future__ import annotations

import pytest

from gateway.admin.screens.reasons import explain
from inference.errors import ErrorCode
from inference.transport.records import Ending

# Nothing that has a request's record ends so.
_REFUSED_BEFORE = {
    ErrorCode.AUTHENTICATION,
    ErrorCode.PERMISSION,
    ErrorCode.NOT_FOUND,
    ErrorCode.METHOD_NOT_ALLOWED,
    ErrorCode.TOO_LARGE,
    ErrorCode.CONFLICT,
}


@pytest.mark.parametrize("code", [code for code in ErrorCode if code not in _REFUSED_BEFORE])
def test_every_failure_of_a_request_is_explained(code: ErrorCode) -> None:
    assert explain(Ending.FAILED.value, code.value)


@pytest.mark.parametrize("ending", [Ending.GATEWAY_LOST, Ending.ENGINE_LOST, Ending.TIMEOUT])
def test_what_its_process_could_not_say_is_explained(ending: Ending) -> None:
    assert explain(ending.value, "")


def test_what_ended_as_it_should_needs_no_explanation() -> None:
    assert explain("finished", "end") == ""
    assert explain("", "") == ""


def test_a_cut_answer_is_explained() -> None:
    assert "max_tokens" in explain("finished", "length")
