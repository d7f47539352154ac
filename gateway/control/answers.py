"""What was said and answered, as the control API tells it: in the form that the caller saw."""

from __future__ import annotations

import codecs
from typing import Any

import msgspec

from gateway.dialects.anthropic.encode import message
from gateway.errors import error_body
from inference.errors import ErrorCode, TandemError
from inference.events import Finished, FinishReason, Usage
from inference.fold import Answer, AnswerPart
from inference.transport.records import Ending
from jobs.models import RequestRecord

JsonObject = dict[str, Any]

_REASONS = {reason.value: reason for reason in FinishReason}
_CODES = {code.value: code for code in ErrorCode}


def render_body(body: bytes | None) -> JsonObject | None:
    """Return the request's own JSON; None if it is not kept."""
    return None if body is None else msgspec.json.decode(body.removeprefix(codecs.BOM_UTF8))


def render_result(record: RequestRecord, parts: tuple[AnswerPart, ...] | None) -> JsonObject | None:
    """Return the answer as one JSON message; None if none is kept.

    Of an answer that was broken off it is what there was until then, without a stop reason. Which
    stop sequence matched is not on record.
    """
    if parts is None:
        return None
    reason = _REASONS.get(record.detail) if record.ending == Ending.FINISHED else None
    usage = Usage(
        prompt_tokens=record.input_tokens,
        cached_tokens=record.cached_tokens,
        cache_written_tokens=record.cache_written_tokens,
        output_tokens=record.output_tokens,
        thinking_tokens=record.thinking_tokens,
    )
    answer = Answer(parts=parts, finished=Finished(reason=reason or FinishReason.END, usage=usage))
    rendered: JsonObject = msgspec.json.decode(message(answer, f"msg_{record.id}", record.model))
    return rendered if reason else rendered | {"stop_reason": None}


def render_error(record: RequestRecord) -> JsonObject | None:
    """Return the error as its caller was told it; None if the request did not fail."""
    if record.status != RequestRecord.Status.FAILED:
        return None
    # Where a process was killed, nobody was left to say what it was.
    code = _CODES.get(record.detail) or _CODES.get(record.ending) or ErrorCode.INTERNAL
    text = record.error or f"the request ended without an answer ({record.ending or 'unknown'})"
    error: JsonObject = msgspec.json.decode(error_body(TandemError(code, text), f"req_{record.id}"))
    return error
