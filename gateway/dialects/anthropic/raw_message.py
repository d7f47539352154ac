"""An upstream's answer that travelled as it was, as one JSON message: for the trail's readers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

JsonObject = dict[str, Any]


def as_message(data: bytes) -> JsonObject:
    """Return the message, whether it came as JSON or as frames. What was broken off is as it was.

    Nothing is taken for granted of what an upstream says: what cannot be read is left out.
    """
    if data.lstrip().startswith(b"{"):
        return _object(data)
    answer = _StreamedMessage()
    for event in _events(data):
        answer.add(event)
    return answer.message()


def _object(data: bytes) -> JsonObject:
    try:
        return msgspec.json.decode(data, type=JsonObject)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}


def _events(frames: bytes) -> Iterator[JsonObject]:
    """Yield what the frames carry. A line of data is taken for all that its frame has."""
    for line in frames.splitlines():
        if line.startswith(b"data:"):
            yield _object(line.removeprefix(b"data:"))


class _StreamedMessage:
    """Puts a stream's events together as Anthropic's own clients do."""

    def __init__(self) -> None:
        self._message: JsonObject = {}
        self._blocks: dict[int, JsonObject] = {}
        self._inputs: dict[int, str] = {}

    def add(self, event: JsonObject) -> None:
        """Take the next event."""
        match event:
            case {"type": "message_start", "message": dict(message)}:
                self._message = message
            case {"type": "content_block_start", "index": int(index), "content_block": dict(block)}:
                self._blocks[index] = block
            case {"type": "content_block_delta", "index": int(index), "delta": dict(delta)}:
                self._grow(index, delta)
            case {"type": "message_delta"}:
                self._end(event)
            case {"type": "error", "error": error}:
                self._message["error"] = error

    def message(self) -> JsonObject:
        """Return what has come of the message."""
        content = [self._blocks[index] | self._input(index) for index in sorted(self._blocks)]
        return self._message | {"content": content}

    def _end(self, event: JsonObject) -> None:
        match event.get("delta"):
            case dict(delta):
                self._message |= delta
        match self._message.get("usage"), event.get("usage"):
            case dict(before), dict(after):
                self._message["usage"] = before | after

    def _grow(self, index: int, delta: JsonObject) -> None:
        block = self._blocks.setdefault(index, {})
        match delta:
            case {"type": "input_json_delta", "partial_json": str(piece)}:
                self._inputs[index] = self._inputs.get(index, "") + piece
            case {"type": "citations_delta", "citation": citation}:
                before = block.get("citations")
                block["citations"] = [*(before if isinstance(before, list) else ()), citation]
            case _:
                _lengthen(block, delta)

    def _input(self, index: int) -> JsonObject:
        """Return the arguments of a call, as text where they were broken off."""
        if not (text := self._inputs.get(index)):
            return {}
        return {"input": _object(text.encode("utf-8", "surrogatepass")) or text}


def _lengthen(block: JsonObject, delta: JsonObject) -> None:
    """Add what is text to what there is: `text`, `thinking`, `signature` and what may come."""
    for name, piece in delta.items():
        before = block.get(name) or ""
        if name != "type" and isinstance(piece, str) and isinstance(before, str):
            block[name] = before + piece
