"""What was said and answered, as the control API tells it: in the form that the caller saw."""

from __future__ import annotations

import codecs
from typing import Any

import msgspec

from gateway.dialects.anthropic.encode import message
from gateway.dialects.anthropic.raw_message import as_message
from gateway.dialects.chat.encode import Shape, completion
from gateway.errors import ANTHROPIC, OPENAI
from inference.errors import ErrorCode, TandemError
from inference.events import Finished, FinishReason, Usage
from inference.fold import Answer, AnswerPart, KeptPart, RawPart
from inference.request import Lane, ServerToolCallPart, ServerToolResultPart
from inference.transport.records import Ending
from jobs.models import RequestRecord

JsonObject = dict[str, Any]

_REASONS = {reason.value: reason for reason in FinishReason}
_CODES = {code.value: code for code in ErrorCode}
_CHAT = "chat"
_OPENAI = (_CHAT, "responses")


def render_body(body: bytes | None) -> JsonObject | None:
    """Return the request's own JSON; None if it is not kept."""
    return None if body is None else msgspec.json.decode(body.removeprefix(codecs.BOM_UTF8))


def render_result(record: RequestRecord, kept: tuple[KeptPart, ...] | None) -> JsonObject | None:
    """Return the answer as one JSON message, or as one completion; None if none is kept.

    Of an answer that was broken off it is what there was until then, without a reason for its end.
    Which stop sequence matched is not on record.
    """
    match kept:
        case None:
            return None
        case (RawPart(data=data),):
            return as_message(data)
    return _rendered(record, tuple(part for part in kept if not isinstance(part, RawPart)))


def _rendered(record: RequestRecord, parts: tuple[AnswerPart, ...]) -> JsonObject:
    reason = _REASONS.get(record.detail) if record.ending == Ending.FINISHED else None
    usage = Usage(
        prompt_tokens=record.input_tokens,
        cached_tokens=record.cached_tokens,
        cache_written_tokens=record.cache_written_tokens,
        output_tokens=record.output_tokens,
        thinking_tokens=record.thinking_tokens,
    )
    answer = Answer(parts=parts, finished=Finished(reason=reason or FinishReason.END, usage=usage))
    if record.dialect == _CHAT:
        return _completion(record, answer, is_whole=reason is not None)
    rendered: JsonObject = msgspec.json.decode(message(answer, f"msg_{record.id}", record.model))
    return rendered if reason else rendered | {"stop_reason": None}


def _completion(record: RequestRecord, answer: Answer, *, is_whole: bool) -> JsonObject:
    shape = Shape(
        completion_id=f"chatcmpl-{record.id}",
        model=record.model,
        created_s=int(record.created_at.timestamp()),
        tier="flex" if record.lane == Lane.FLEX else "default",
    )
    rendered: JsonObject = msgspec.json.decode(completion([answer], shape))
    if not is_whole:
        rendered["choices"][0]["finish_reason"] = None
    if ran := _server_calls(answer):
        # The caller saw nothing of them; whoever has to answer for them shall.
        rendered["server_tool_calls"] = ran
    return rendered


def _server_calls(answer: Answer) -> list[JsonObject]:
    """Return the calls that the server ran and their results, as blocks of a message."""
    parts = tuple(
        part for part in answer.parts if isinstance(part, ServerToolCallPart | ServerToolResultPart)
    )
    ran = message(msgspec.structs.replace(answer, parts=parts), "", "")
    blocks: list[JsonObject] = msgspec.json.decode(ran)["content"]
    return blocks


def render_error(record: RequestRecord) -> JsonObject | None:
    """Return the error as its caller was told it; None if the request did not fail."""
    if record.status != RequestRecord.Status.FAILED:
        return None
    # Where a process was killed, nobody was left to say what it was.
    code = _CODES.get(record.detail) or _CODES.get(record.ending) or ErrorCode.INTERNAL
    text = record.error or f"the request ended without an answer ({record.ending or 'unknown'})"
    envelope = OPENAI if record.dialect in _OPENAI else ANTHROPIC
    error: JsonObject = msgspec.json.decode(
        envelope.body(TandemError(code, text), f"req_{record.id}")
    )
    return error
