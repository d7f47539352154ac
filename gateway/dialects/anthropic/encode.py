"""From canonical events to the Messages answer: server-sent events, or one JSON message.

Both are made from the same pieces, so a client that folds the stream gets the JSON message.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.errors import error_body
from gateway.http.sse import COMMENT, json_line
from inference.errors import TandemError
from inference.events import (
    Event,
    Failed,
    Finished,
    FinishReason,
    ServerToolCall,
    ServerToolResult,
    Started,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
)
from inference.fold import Answer, AnswerPart
from inference.request import (
    ServerToolCallPart,
    ServerToolResultPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)

STOP_REASONS: dict[FinishReason, str] = {
    FinishReason.END: "end_turn",
    FinishReason.LENGTH: "max_tokens",
    FinishReason.STOP_SEQUENCE: "stop_sequence",
    FinishReason.TOOL_USE: "tool_use",
    FinishReason.PAUSE: "pause_turn",
    FinishReason.REFUSAL: "refusal",
}

_MCP = "mcptoolu_"

_encode = msgspec.json.Encoder().encode


def _frame(kind: str, payload: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode("ascii"), json_line({"type": kind, **payload}))


PING = _frame("ping", {})
"""Keeps a quiet stream alive. Send it only after the first frame of `MessageStream`."""

_MESSAGE_STOP = _frame("message_stop", {})

# Every token passes here: a block's frame is made once and only the text is encoded anew.
_Cut = tuple[bytes, bytes]


def _cut_delta(index: int, kind: str, field: str) -> _Cut:
    delta = {"type": kind, field: "@"}
    head, tail = _frame("content_block_delta", {"index": index, "delta": delta}).split(b'"@"')
    return head, tail


class MessageStream:
    """Turns the events of one run into frames.

    One block is open at a time, and each has the next index. An answer without parts has none.
    """

    def __init__(self, message_id: str, model: str, request_id: str) -> None:
        self._message_id = message_id
        self._model = model
        self._request_id = request_id
        self.over = False
        self._started = False
        self._index = -1
        self._open: type[TextDelta | ThinkingDelta | ToolCallStarted] | None = None
        self._delta: _Cut = (b"", b"")
        self._has_arguments = False

    def feed(self, event: Event) -> bytes:
        """Return the frames for the next event, empty if it has none.

        A run that another engine took over starts again: only the first start is told.
        """
        match event:
            case TextDelta(text=text):
                if self._open is TextDelta:
                    return self._piece(text)
                block = {"type": "text", "text": ""}
                return self._begin(TextDelta, block, ("text_delta", "text")) + self._piece(text)
            case ThinkingDelta(text=text):
                if self._open is ThinkingDelta:
                    return self._piece(text)
                block = {"type": "thinking", "thinking": "", "signature": ""}
                begin = self._begin(ThinkingDelta, block, ("thinking_delta", "thinking"))
                return begin + self._piece(text)
            case ToolCallDelta(arguments=arguments):
                self._has_arguments = True
                return self._piece(arguments)
            case ToolCallStarted(id=call_id, name=name):
                block = _tool_use(call_id, name) | {"input": {}}
                return self._begin(ToolCallStarted, block, ("input_json_delta", "partial_json"))
            case _:
                return self._around(event)

    def _around(self, event: Event) -> bytes:
        """Return the frames of what is no piece of text."""
        match event:
            case ServerToolCall(id=call_id, server=server, name=name, arguments=arguments):
                return self._whole(_mcp_tool_use(call_id, server, name, arguments))
            case ServerToolResult(call_id=call_id, text=text, is_error=is_error):
                return self._whole(_mcp_tool_result(call_id, text, is_error=is_error))
            case Started(prompt_tokens=prompt_tokens):
                return self._start(prompt_tokens)
            case Finished():
                self.over = True
                return self._finish(event)
            case Failed(code=code, message=reason):
                self.over = True
                return failure(TandemError(code, reason), self._request_id)
        # Raw events are of requests that `RawStream` answers.
        return b""

    def refusal(self, event: Event) -> TandemError | None:
        """Return the error if the very first event says that there will be no answer."""
        return TandemError(event.code, event.message) if isinstance(event, Failed) else None

    def keep_alive(self, *, begun: bool) -> bytes:
        """Return a ping, but none before `message_start`: some clients take the first for it."""
        return PING if begun else COMMENT

    def _start(self, prompt_tokens: int) -> bytes:
        if self._started:
            return b""
        self._started = True
        # What the cache held is known at the end only; `message_delta` corrects these.
        usage = Usage(prompt_tokens=prompt_tokens, cached_tokens=0, output_tokens=0)
        start = _message(self._message_id, self._model) | {"usage": _counts(usage)}
        return _frame("message_start", {"message": start})

    def _begin(
        self,
        kind: type[TextDelta | ThinkingDelta | ToolCallStarted],
        block: dict[str, Any],
        delta: tuple[str, str],
    ) -> bytes:
        closed = self._close()
        self._has_arguments = False
        self._open = kind
        self._index += 1
        self._delta = _cut_delta(self._index, *delta)
        return closed + _frame(
            "content_block_start", {"index": self._index, "content_block": block}
        )

    def _whole(self, block: dict[str, Any]) -> bytes:
        """Return a block that begins whole: of one that the server ran, clients fold no deltas."""
        closed = self._close()
        self._index += 1
        return b"".join(
            (
                closed,
                _frame("content_block_start", {"index": self._index, "content_block": block}),
                _frame("content_block_stop", {"index": self._index}),
            )
        )

    def _piece(self, text: str) -> bytes:
        head, tail = self._delta
        return head + json_line(text) + tail

    def _close(self) -> bytes:
        if self._open is None:
            return b""
        last = b""
        if self._open is ThinkingDelta:
            head, tail = _cut_delta(self._index, "signature_delta", "signature")
            last = head + b'""' + tail
        elif self._open is ToolCallStarted and not self._has_arguments:
            last = self._piece("{}")
        self._open = None
        return last + _frame("content_block_stop", {"index": self._index})

    def _finish(self, finished: Finished) -> bytes:
        end = {"delta": _stop(finished), "usage": _total(finished.usage)}
        return self._close() + _frame("message_delta", end) + _MESSAGE_STOP


def failure(error: TandemError, request_id: str) -> bytes:
    """Return the frame that ends a broken stream."""
    # An upstream's own body may have several lines.
    data = b" ".join(error_body(error, request_id).splitlines())
    return b"event: error\ndata: %b\n\n" % data


def message(
    answer: Answer, message_id: str, model: str, *, service_tier: str | None = None
) -> bytes:
    """Return the JSON message of a whole answer, with the tier that served it where it matters."""
    usage = _total(answer.finished.usage)
    return _encode(
        _message(message_id, model)
        | {"content": [_block(part) for part in answer.parts]}
        | _stop(answer.finished)
        | {"usage": usage | ({"service_tier": service_tier} if service_tier else {})}
    )


def _block(part: AnswerPart) -> dict[str, Any]:
    match part:
        case TextPart(text=text):
            return {"type": "text", "text": text}
        case ThinkingPart(text=text):
            return {"type": "thinking", "thinking": text, "signature": ""}
        case ToolCallPart(id=call_id, name=name, arguments=arguments):
            # As the model wrote it: decoding would round its numbers.
            return _tool_use(call_id, name) | {"input": msgspec.Raw(arguments.encode())}
        case ServerToolCallPart(id=call_id, server=server, name=name, arguments=arguments):
            return _mcp_tool_use(call_id, server, name, arguments)
        case ServerToolResultPart(call_id=call_id, text=text, is_error=is_error):
            return _mcp_tool_result(call_id, text, is_error=is_error)


def _tool_use(call_id: str, name: str) -> dict[str, Any]:
    """Return the block of a call. Without hyphens the id is short enough for every other API."""
    return {"type": "tool_use", "id": f"toolu_{call_id.replace('-', '')}", "name": name}


def _mcp_tool_use(call_id: str, server: str, name: str, arguments: str) -> dict[str, Any]:
    return {
        "type": "mcp_tool_use",
        "id": _mcp_id(call_id),
        "name": name,
        "server_name": server,
        "input": msgspec.Raw(arguments.encode()),
    }


def _mcp_tool_result(call_id: str, text: str, *, is_error: bool) -> dict[str, Any]:
    # Clients send it back, and an empty text block is none.
    content = [{"type": "text", "text": text}] if text else []
    return {
        "type": "mcp_tool_result",
        "tool_use_id": _mcp_id(call_id),
        "is_error": is_error,
        "content": content,
    }


def _mcp_id(call_id: str) -> str:
    """Return the id of a call that the server runs: made of ours, or as it was sent back."""
    return call_id if call_id.startswith(_MCP) else f"{_MCP}{call_id.replace('-', '')}"


def _message(message_id: str, model: str) -> dict[str, Any]:
    """Return a message that has not begun. No key is ever left out: strict clients need each."""
    return {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "stop_details": None,
    }


def _stop(finished: Finished) -> dict[str, str | None]:
    return {
        "stop_reason": STOP_REASONS[finished.reason],
        "stop_sequence": finished.stop_sequence,
        # Clients take it from `message_delta`, null or not.
        "stop_details": None,
    }


def _counts(usage: Usage) -> dict[str, Any]:
    """Split the prompt: what the cache had or has now is not input a second time."""
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens - usage.cache_written_tokens,
        "cache_creation_input_tokens": usage.cache_written_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
    }


def _total(usage: Usage) -> dict[str, Any]:
    """Return the final counts. No cache entry is promised to live an hour."""
    return _counts(usage) | {
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.cache_written_tokens,
            "ephemeral_1h_input_tokens": 0,
        },
        "output_tokens_details": {"thinking_tokens": usage.thinking_tokens},
    }
