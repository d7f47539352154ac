"""Rows that have ended, as each dialect's clients read them."""

from __future__ import annotations

import json
import uuid
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from anthropic.types.messages import MessageBatchIndividualResponse
from openai.types.chat import ChatCompletion
from openai.types.responses import Response
from sference_sdk import BatchResultRow

from gateway.batches.render import EndedRow, anthropic_line, openai_line, sference_row
from inference.errors import ErrorCode
from inference.events import Finished, FinishReason, Usage
from inference.fold import Answer
from inference.request import TextPart, ThinkingPart
from jobs.packing import pack_answer
from tests.unit.gateway.batches.material import MODEL, NOW

ID = uuid.UUID(int=9)
ANSWER = Answer(
    parts=(ThinkingPart("hm"), TextPart("one\u2028two")),
    finished=Finished(
        reason=FinishReason.END,
        usage=Usage(prompt_tokens=5, cached_tokens=2, output_tokens=3, thinking_tokens=1),
    ),
)
DONE = EndedRow(
    id=ID,
    line=1,
    custom_id="a",
    dialect="chat",
    model=MODEL,
    created_at=NOW,
    ended_at=NOW + timedelta(seconds=30),
    outcome="completed",
    answer=pack_answer(ANSWER),
    echo=None,
    error_code="",
    error_message="",
)


def ended(dialect: str = "chat", outcome: str = "completed", **fields: Any) -> EndedRow:
    changes = {"dialect": dialect, "outcome": outcome} | fields
    return msgspec.structs.replace(DONE, **changes)


def failed(dialect: str, code: ErrorCode = ErrorCode.ENGINE_FAILED, **fields: Any) -> EndedRow:
    error = {"error_code": code.value, "error_message": "it broke"}
    return ended(dialect, "failed", answer=b"", **(error | fields))


def one_line(data: bytes) -> Any:
    """Decode a line, which no reader may take for several."""
    assert data.endswith(b"\n")
    assert len(data.decode().splitlines()) == 1
    return json.loads(data)


def test_openais_line_has_what_chat_would_have_answered() -> None:
    line = one_line(openai_line(ended("chat")))
    body = line["response"].pop("body")
    assert line == {
        "id": f"batch_req_{ID.hex}",
        "custom_id": "a",
        "response": {"status_code": 200, "request_id": f"req_{ID}"},
        "error": None,
    }
    completion = ChatCompletion.model_validate(body)
    assert completion.id == f"chatcmpl-{ID}"
    assert completion.model == MODEL
    assert completion.choices[0].message.content == "one\u2028two"
    assert body["choices"][0]["message"]["reasoning_content"] == "hm"


def test_chat_hides_the_reasoning_of_a_row_that_asked_for_it() -> None:
    line = one_line(openai_line(ended("chat", echo=b'{"reasoning":false}')))
    assert line["response"]["body"]["choices"][0]["message"]["reasoning_content"] is None


def test_openais_line_has_what_responses_would_have_answered() -> None:
    echo = b'{"instructions":"be brief","store":false}'
    body = one_line(openai_line(ended("responses", echo=echo)))["response"]["body"]
    response = Response.model_validate(body)
    assert (response.id, response.status) == (f"resp_{ID}", "completed")
    assert response.output_text == "one\u2028two"
    assert response.instructions == "be brief"
    assert body["store"] is False


def test_openais_line_has_what_messages_would_have_answered() -> None:
    body = one_line(openai_line(ended("anthropic")))["response"]["body"]
    assert (body["id"], body["type"]) == (f"msg_{ID}", "message")


@pytest.mark.parametrize(
    ("dialect", "code", "status", "kind"),
    [
        ("chat", ErrorCode.INVALID_REQUEST, 400, "invalid_request_error"),
        ("responses", ErrorCode.MODEL_NOT_FOUND, 404, "invalid_request_error"),
        ("chat", ErrorCode.ENGINE_LOST, 500, "server_error"),
        ("anthropic", ErrorCode.BALANCE_EXHAUSTED, 402, "billing_error"),
        ("anthropic", ErrorCode.OVERLOADED, 529, "overloaded_error"),
        ("chat", ErrorCode.OVERLOADED, 503, "server_error"),
    ],
)
def test_a_failed_row_has_its_endpoints_status_and_error(
    dialect: str, code: ErrorCode, status: int, kind: str
) -> None:
    row = failed(dialect, code)
    line = one_line(openai_line(row))
    assert not row.completed
    assert line["error"] is None
    assert line["response"]["status_code"] == status
    assert line["response"]["body"]["error"]["type"] == kind
    assert line["response"]["body"]["error"]["message"] == "it broke"


def test_a_row_that_could_not_be_read_says_which_field_was_wrong() -> None:
    echo = b'{"param":"messages[0]","reason":"invalid_type"}'
    row = failed("chat", ErrorCode.INVALID_REQUEST, model="", echo=echo)
    error = one_line(openai_line(row))["response"]["body"]["error"]
    assert (error["param"], error["code"]) == ("messages[0]", "invalid_type")
    echo = b'{"param":"what the caller sent"}'
    error = one_line(openai_line(failed("responses", echo=echo)))["response"]["body"]["error"]
    assert error["param"] is None


@pytest.mark.parametrize(
    ("outcome", "code"), [("expired", "batch_expired"), ("cancelled", "batch_cancelled")]
)
def test_a_row_that_was_never_run_has_no_response(outcome: str, code: str) -> None:
    line = one_line(openai_line(ended("chat", outcome, answer=b"")))
    assert line["response"] is None
    assert line["error"]["code"] == code


def test_anthropics_line_has_the_message_at_the_batch_tier() -> None:
    line = one_line(anthropic_line(ended("anthropic")))
    result = MessageBatchIndividualResponse.model_validate(line).result
    assert result.type == "succeeded"
    assert result.message.id == f"msg_{ID}"
    assert result.message.usage.service_tier == "batch"
    assert result.message.usage.output_tokens == 3


def test_anthropics_line_says_how_a_row_without_an_answer_ended() -> None:
    line = one_line(anthropic_line(failed("anthropic")))
    error = MessageBatchIndividualResponse.model_validate(line).result
    assert error.type == "errored"
    assert error.error.error.type == "api_error"
    assert error.error.request_id == f"req_{ID}"
    for outcome, kind in (("cancelled", "canceled"), ("expired", "expired")):
        line = one_line(anthropic_line(ended("anthropic", outcome, answer=b"")))
        assert line == {"custom_id": "a", "result": {"type": kind}}


def test_sferences_row_has_the_completion() -> None:
    row = BatchResultRow.model_validate(json.loads(sference_row(ended())))
    assert (row.custom_id, row.status, row.error_json) == ("a", "completed", None)
    assert row.completion_text == "one\u2028two"
    assert json.loads(sference_row(ended(custom_id="")))["custom_id"] is None


@pytest.mark.parametrize(
    ("row", "status", "code"),
    [
        (failed("chat"), "failed", "server_error"),
        (ended("chat", "expired", answer=b""), "failed", "batch_expired"),
        (ended("chat", "cancelled", answer=b""), "cancelled", "batch_cancelled"),
    ],
)
def test_sferences_row_says_how_one_without_an_answer_ended(
    row: EndedRow, status: str, code: str
) -> None:
    told = BatchResultRow.model_validate(json.loads(sference_row(row)))
    assert (told.status, told.result_json) == (status, None)
    assert told.error_json is not None
    assert told.error_json["code"] == code
