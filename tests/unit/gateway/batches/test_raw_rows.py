"""Rows that travel as they were sent, and their results."""

from __future__ import annotations

import json
import uuid
from typing import Any

import msgspec
import pytest

from gateway.batches.endpoints import CHAT, INLINE, MESSAGES
from gateway.batches.render import EndedRow, anthropic_line, openai_line, sference_row
from gateway.batches.rows import Row, RowReader
from inference.catalogue import Catalogue
from inference.errors import ErrorCode, TandemError
from inference.events import Finished, FinishReason, Usage
from inference.fold import Answer, RawPart
from inference.request import Lane, RawRequest
from jobs.packing import pack_answer, unpack_request
from tests.raw_messages import MESSAGE, named, request
from tests.unit.gateway.batches.material import MODEL, NOW, TERMS, USER, no_images

HEADERS = ((b"Anthropic-Beta", b"a,b"), (b"cookie", b"c"))
(SEEING, BLIND) = TERMS.catalogue.entries
FAR = msgspec.structs.replace(SEEING, backend="anthropic")
RAW_TERMS = msgspec.structs.replace(TERMS, catalogue=Catalogue([FAR, BLIND]), headers=HEADERS)
ANSWER = Answer(
    parts=(),
    raw=RawPart(named(MESSAGE, MODEL)),
    finished=Finished(
        reason=FinishReason.END, usage=Usage(prompt_tokens=19, cached_tokens=5, output_tokens=7)
    ),
)


def reader(endpoint: str = MESSAGES) -> RowReader:
    return RowReader(endpoint, RAW_TERMS, no_images)


def ended(**fields: Any) -> EndedRow:
    row: dict[str, Any] = {
        "id": uuid.UUID(int=9),
        "line": 1,
        "custom_id": "a",
        "dialect": "anthropic",
        "model": MODEL,
        "created_at": NOW,
        "ended_at": NOW,
        "outcome": "completed",
        "answer": pack_answer(ANSWER),
        "echo": None,
        "error_code": "",
        "error_message": "",
    }
    return EndedRow(**(row | fields))


def test_a_row_travels_byte_for_byte() -> None:
    body = request("seeing", stream=False)
    work = reader().read(Row(1, "a", body))
    made = unpack_request(work.request)
    assert made.raw == RawRequest(
        path="/v1/messages", body=body, headers=(("anthropic-beta", "a,b"),)
    )
    assert (made.model, made.lane, made.messages) == (MODEL, Lane.BATCH, ())
    assert (work.model, work.max_tokens, work.ignored_fields) == (MODEL, 64, ())
    # Nobody knows what the upstream adds to the prompt: all of the context, and 64 tokens more.
    assert work.hold_micros == (1000 * 1 + 64 * 2) // 2


def test_what_admission_needs_of_a_row_is_checked() -> None:
    for body, message in (
        (b'{"model":"seeing","max_tokens":1,"stream":true}', "stream: "),
        (b'{"model":"seeing"}', "max_tokens: "),
        (
            b'{"model":"seeing","max_tokens":9,"max_tokens":1}',
            "The request body cannot be passed on: `max_tokens` comes twice",
        ),
        (b'{"model":"seeing","max_tokens":1,', "The request body is not valid JSON"),
    ):
        with pytest.raises(TandemError) as refused:
            reader().read(Row(1, "a", body))
        assert refused.value.code is ErrorCode.INVALID_REQUEST
        assert refused.value.message.startswith(message)


def test_rows_of_other_endpoints_are_translated() -> None:
    message = {"role": "user", "content": "hello"}
    body = {"model": "seeing", "max_tokens": 5, "messages": [message]}
    for endpoint in (CHAT, INLINE):
        work = reader(endpoint).read(Row(1, "a", msgspec.json.encode(body)))
        assert unpack_request(work.request).raw is None


@pytest.mark.parametrize("render", [anthropic_line, openai_line, sference_row])
def test_a_result_has_the_upstreams_message_in_one_line(render: Any) -> None:
    line = render(ended()).removesuffix(b"\n")
    assert len(line.splitlines()) == 1
    said = named(MESSAGE, MODEL).strip()
    assert b" ".join(said.splitlines()) in line
    json.loads(line)


def test_a_failed_row_has_the_upstreams_message() -> None:
    row = ended(outcome="failed", answer=b"", error_code="overloaded", error_message="Overloaded")
    error = json.loads(anthropic_line(row))["result"]["error"]
    assert error["error"] == {"type": "overloaded_error", "message": "Overloaded"}


def test_a_header_that_no_upstream_would_take_fails_the_rows_that_it_would_travel_with() -> None:
    terms = msgspec.structs.replace(RAW_TERMS, headers=((b"user-agent", b"curl\0"),))
    made = RowReader(MESSAGES, terms, no_images)
    with pytest.raises(TandemError, match="user-agent"):
        made.read(Row(1, "a", request("seeing", stream=False)))
    body = msgspec.json.encode({"model": BLIND.id, "max_tokens": 5, "messages": [USER]})
    assert made.read(Row(1, "a", body)).model == BLIND.id
