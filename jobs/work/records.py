"""Says of a piece of work what gateways and engines say of a request: the same three records.

Pure. What is billed follows from them as it does for every request (docs/decisions/0009), with two
rules more: what was not finished when its window ended is not billed, and of a batch nothing is
but the rows that were completed.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import msgspec

from inference.engine.work import WorkResult
from inference.errors import ErrorCode
from inference.events import Usage
from inference.request import Lane
from inference.transport.records import Admitted, Closed, Completed, Ending, Record
from jobs.work.rows import Origin, Row


class Engine(NamedTuple):
    """Who takes work: an engine's id, the model that it serves, and where."""

    id: str
    model: str
    host: str


_NOTHING = Usage(prompt_tokens=0, cached_tokens=0, output_tokens=0)
_json = msgspec.json.Decoder(tuple[str, ...]).decode


def of_result(row: Row, origin: Origin, result: WorkResult, engine: Engine) -> list[Record]:
    """Return the records of work that an engine has ended."""
    ending, detail = _ending(row, result)
    request_id, usage = str(row.id), result.usage
    parts = result.answer.kept if result.answer is not None else ()
    completed = Completed(
        request_id=request_id,
        attempt=result.item.attempt,
        team_id=row.team_id,
        key_id=str(row.key_id),
        model=row.model,
        lane=Lane(row.lane),
        engine_id=engine.id,
        host=engine.host,
        taken_at_s=result.taken_at_s,
        first_token_at_s=result.first_token_at_s,
        ended_at_s=result.ended_at_s,
        ending=ending,
        detail=detail,
        message=result.message,
        usage=usage,
    )
    closed = Closed(
        request_id=request_id,
        at_s=result.ended_at_s,
        engine_id=engine.id,
        attempts=result.item.attempt + 1,
        first_token_at_s=result.first_token_at_s,
        ending=ending,
        detail=detail,
        message=result.message,
        usage=usage,
        answer_digest=hashlib.sha256(msgspec.msgpack.encode(parts)).digest() if parts else b"",
    )
    return [_admitted(row, origin), completed, closed]


def _ending(row: Row, result: WorkResult) -> tuple[Ending, str]:
    match result.ending:
        case Ending.TIMEOUT:
            return Ending.FAILED, ErrorCode.EXPIRED.value
        case Ending.FINISHED if row.is_cancelled_response:
            return Ending.CANCELLED, Ending.CANCELLED.value
        case Ending.CANCELLED if row.batch_id is not None:
            return Ending.FAILED, ErrorCode.CANCELLED.value
    return result.ending, result.detail


def unserved(row: Row, origin: Origin, code: ErrorCode, message: str, at_s: float) -> list[Record]:
    """Return the records of work that ends although no engine has done it."""
    cancelled = code is ErrorCode.CANCELLED
    closed = Closed(
        request_id=str(row.id),
        at_s=at_s,
        engine_id=None,
        attempts=0,
        first_token_at_s=None,
        ending=Ending.CANCELLED if cancelled else Ending.FAILED,
        detail=code.value,
        message=message,
        usage=_NOTHING,
    )
    return [_admitted(row, origin), closed]


def _admitted(row: Row, origin: Origin) -> Admitted:
    # What it asked is in its batch's input, or in the stored response: the trail has the digest.
    return Admitted(
        request_id=str(row.id),
        at_s=row.created_at.timestamp(),
        deadline_s=row.deadline_at.timestamp(),
        team_id=row.team_id,
        team_name=origin.team_name,
        key_id=str(row.key_id),
        key_name=origin.key_name,
        dialect=row.dialect,
        model=row.model,
        lane=Lane(row.lane),
        stream=row.logged,
        max_tokens=row.max_tokens,
        client=origin.client,
        address=origin.address,
        trace_id=origin.trace_id,
        session_id=origin.session_id,
        ignored=_json(row.ignored_fields),
        batch_id=str(row.batch_id) if row.batch_id else None,
        stream_id=origin.stream_id,
        custom_id=row.custom_id,
        body_digest=row.body_digest,
        body_bytes=row.body_bytes,
    )
