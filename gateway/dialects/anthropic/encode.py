"""From canonical events to the Messages answer: server-sent events, or one JSON message.

Both are made from the same pieces, so a client that folds the stream gets the JSON message.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.errors import error_body
from inference.errors import TandemError
from inference.events import Event, Failed, Finished, FinishReason, Started, TextDelta
from inference.fold import Answer

STOP_REASONS: dict[FinishReason, str] = {
    FinishReason.END: "end_turn",
    FinishReason.LENGTH: "max_tokens",
    FinishReason.STOP_SEQUENCE: "stop_sequence",
}

_encode = msgspec.json.Encoder().encode


def _line(value: Any) -> bytes:
    """Encode as JSON that no reader takes for more than one line.

    JSON escapes ASCII's line breaks. Unicode's three stand in strings as they are, and clients
    that split text into lines would cut a frame there.
    """
    encoded = _encode(value)
    if encoded.isascii():
        return encoded
    return (
        encoded.replace(b"\xc2\x85", b"\\u0085")
        .replace(b"\xe2\x80\xa8", b"\\u2028")
        .replace(b"\xe2\x80\xa9", b"\\u2029")
    )


def _frame(kind: str, payload: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode("ascii"), _line({"type": kind, **payload}))


PING = _frame("ping", {})
"""Keeps a quiet stream alive. Send it only after the first frame of `MessageStream`."""

_BLOCK_START = _frame(
    "content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}}
)
_BLOCK_STOP = _frame("content_block_stop", {"index": 0})
_MESSAGE_STOP = _frame("message_stop", {})
# Every token passes here: only the text itself is encoded anew.
_DELTA_HEAD, _DELTA_TAIL = _frame(
    "content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": "@"}}
).split(b'"@"')


class MessageStream:
    """Turns the events of one run into frames. An answer without text has no content block."""

    def __init__(self, message_id: str, model: str, request_id: str) -> None:
        self._message_id = message_id
        self._model = model
        self._request_id = request_id
        self._started = False
        self._block_open = False

    def feed(self, event: Event) -> bytes:
        """Return the frames for the next event, empty if it has none.

        A run that another engine took over starts again: only the first start is told.
        """
        match event:
            case TextDelta(text=text):
                delta = _DELTA_HEAD + _line(text) + _DELTA_TAIL
                if self._block_open:
                    return delta
                self._block_open = True
                return _BLOCK_START + delta
            case Started(prompt_tokens=prompt_tokens):
                return self._start(prompt_tokens)
            case Finished():
                return self._finish(event)
            case Failed(code=code, message=reason):
                return failure(TandemError(code, reason), self._request_id)

    def _start(self, prompt_tokens: int) -> bytes:
        if self._started:
            return b""
        self._started = True
        # What the cache held is known at the end only; `message_delta` corrects these.
        start = _message(self._message_id, self._model) | {"usage": _usage(prompt_tokens, 0, 0)}
        return _frame("message_start", {"message": start})

    def _finish(self, finished: Finished) -> bytes:
        end = _frame("message_delta", {"delta": _stop(finished), "usage": _total(finished)})
        return (_BLOCK_STOP if self._block_open else b"") + end + _MESSAGE_STOP


def failure(error: TandemError, request_id: str) -> bytes:
    """Return the frame that ends a broken stream."""
    return b"event: error\ndata: %b\n\n" % error_body(error, request_id)


def message(answer: Answer, message_id: str, model: str) -> bytes:
    """Return the JSON message of a whole answer."""
    content = [{"type": "text", "text": answer.text}] if answer.text else []
    return _encode(
        _message(message_id, model)
        | {"content": content}
        | _stop(answer.finished)
        | {"usage": _total(answer.finished)}
    )


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
    }


def _total(finished: Finished) -> dict[str, int]:
    usage = finished.usage
    return _usage(usage.prompt_tokens, usage.cached_tokens, usage.output_tokens)


def _usage(prompt_tokens: int, cached_tokens: int, output_tokens: int) -> dict[str, int]:
    """Split the prompt: what came from the cache is not input a second time."""
    return {
        "input_tokens": prompt_tokens - cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached_tokens,
        "output_tokens": output_tokens,
    }
