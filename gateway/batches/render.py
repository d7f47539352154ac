"""What became of a batch's rows, as each dialect's clients read it: one JSON object for each row.

Pure: what goes in are the columns of `jobs.models.Work` that `COLUMNS` names.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from gateway.dialects.anthropic.encode import message
from gateway.dialects.chat import encode as chat
from gateway.dialects.responses import encode as responses
from gateway.errors import ANTHROPIC, OPENAI, Envelope, openai_error
from gateway.http.sse import json_line
from inference.errors import ErrorCode, TandemError
from inference.fold import Answer
from jobs.packing import unpack_answer


class EndedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row that has ended. The fields mean what `jobs.models.Work` says they mean."""

    id: UUID
    line: int
    custom_id: str
    dialect: str
    model: str
    created_at: datetime
    ended_at: datetime
    outcome: str
    answer: bytes
    echo: bytes | None
    error_code: str
    error_message: str

    @property
    def completed(self) -> bool:
        """Whether it has an answer: OpenAI's output file has those rows, its error file others."""
        return self.outcome == "completed"

    @property
    def request_id(self) -> str:
        """What a header would have called it."""
        return f"req_{self.id}"

    @property
    def error(self) -> TandemError:
        """Why it failed."""
        code = ErrorCode.read(self.error_code)
        # Of a row that could not be read, what is known of its error is there instead.
        more = self.repeated if not self.model else {}
        message = self.error_message or "the request failed"
        return TandemError(code, message, param=more.get("param"), reason=more.get("reason"))

    @property
    def repeated(self) -> dict[str, Any]:
        """What the answer repeats of the request."""
        return msgspec.json.decode(self.echo, type=dict[str, Any]) if self.echo else {}


COLUMNS = EndedRow.__struct_fields__
"""What to read of the table."""


def _messages_body(row: EndedRow, answer: Answer) -> bytes:
    if answer.raw is not None:
        # As the upstream said it, but in one line: no string has a bare line break.
        return b" ".join(answer.raw.data.splitlines())
    return message(answer, f"msg_{row.id}", row.model, service_tier="batch")


def _chat_body(row: EndedRow, answer: Answer) -> bytes:
    shape = chat.Shape(
        completion_id=f"chatcmpl-{row.id}",
        model=row.model,
        created_s=int(row.created_at.timestamp()),
        reasoning=row.repeated.get("reasoning", True),
    )
    return chat.completion([answer], shape)


def _responses_body(row: EndedRow, answer: Answer) -> bytes:
    shape = responses.Shape(
        id=str(row.id),
        created_at_s=row.created_at.timestamp(),
        completed_at_s=row.ended_at.timestamp(),
        model=row.model,
        body=row.repeated,
    )
    status = responses.status_of(answer.finished)
    return json_line(responses.render(shape, status, answer=answer))


class _Dialect(NamedTuple):
    envelope: Envelope
    body: Callable[[EndedRow, Answer], bytes]


_DIALECTS = {
    "anthropic": _Dialect(ANTHROPIC, _messages_body),
    "chat": _Dialect(OPENAI, _chat_body),
    "responses": _Dialect(OPENAI, _responses_body),
}


def answer_body(row: EndedRow) -> bytes:
    """Return the JSON that a completed row's endpoint would have answered."""
    return _DIALECTS[row.dialect].body(row, unpack_answer(row.answer))


_NOT_RUN = {
    "expired": (
        "batch_expired",
        "This request could not be executed before the completion window expired.",
    ),
    "cancelled": ("batch_cancelled", "The batch was cancelled before this request was executed."),
}


def openai_line(row: EndedRow) -> bytes:
    """Return the row's line of OpenAI's output file, or of its error file, with its line break.

    What an endpoint says has a status and a body, a refusal too; only of a row that was never run
    the line itself says why (contracts 9).
    """
    response, error = None, None
    if row.completed:
        response = _response(row, 200, answer_body(row))
    elif row.outcome in _NOT_RUN:
        code, text = _NOT_RUN[row.outcome]
        error = {"code": code, "message": text}
    else:
        envelope = _DIALECTS[row.dialect].envelope
        failure = row.error
        body = envelope.body(failure, row.request_id)
        response = _response(row, envelope.status(failure), body)
    line = {
        "id": f"batch_req_{row.id.hex}",
        "custom_id": row.custom_id,
        "response": response,
        "error": error,
    }
    return json_line(line) + b"\n"


def _response(row: EndedRow, status: int, body: bytes) -> dict[str, object]:
    return {"status_code": status, "request_id": row.request_id, "body": msgspec.Raw(body)}


def anthropic_line(row: EndedRow) -> bytes:
    """Return the row's line of Anthropic's results, with its line break."""
    result: dict[str, object]
    match row.outcome:
        case "completed":
            result = {"type": "succeeded", "message": msgspec.Raw(answer_body(row))}
        case "cancelled":
            result = {"type": "canceled"}
        case "expired":
            result = {"type": "expired"}
        case _:
            error = msgspec.Raw(ANTHROPIC.body(row.error, row.request_id))
            result = {"type": "errored", "error": error}
    return json_line({"custom_id": row.custom_id, "result": result}) + b"\n"


def sference_row(row: EndedRow) -> bytes:
    """Return the row as sference's results list it. It knows no expiry of rows: they failed."""
    result, error, status = None, None, row.outcome
    if row.completed:
        result = msgspec.Raw(answer_body(row))
    elif row.outcome == "failed":
        error = openai_error(row.error)
    else:
        code, text = _NOT_RUN[row.outcome]
        error = {"message": text, "type": "invalid_request_error", "param": None, "code": code}
        status = "cancelled" if row.outcome == "cancelled" else "failed"
    return json_line(
        {
            "custom_id": row.custom_id or None,
            "status": status,
            "result_json": result,
            "error_json": error,
        }
    )
