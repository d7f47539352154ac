"""Folds a stream of events into one whole answer: the only way a non-streamed answer is made."""

from __future__ import annotations

from collections.abc import AsyncIterable

import msgspec

from inference.errors import ErrorCode, TandemError
from inference.events import (
    Delta,
    Event,
    Failed,
    Finished,
    Started,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallStarted,
)
from inference.request import TextPart, ThinkingPart, ToolCallPart

AnswerPart = TextPart | ThinkingPart | ToolCallPart


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer: its parts, in the order they came, and how it ended."""

    parts: tuple[AnswerPart, ...]
    finished: Finished

    @property
    def text(self) -> str:
        """The text alone, without thinking and calls."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))


async def fold(events: AsyncIterable[Event]) -> Answer:
    """Return the whole answer. Raises `TandemError` if the run failed or never ended."""
    parts = Parts()
    async for event in events:
        match event:
            case Finished():
                return Answer(parts=tuple(parts.closed()), finished=event)
            case Failed(code=code, message=message):
                raise TandemError(code, message)
            case Started():
                pass
            case _:
                parts.add(event)
    raise TandemError(ErrorCode.ENGINE_LOST, "the answer ended without its final event")


class Parts:
    """Collects deltas into parts: neighbours of one kind are one part."""

    def __init__(self) -> None:
        self._done: list[AnswerPart] = []
        self._pieces: list[str] = []
        self._open: type[TextDelta | ThinkingDelta] | ToolCallStarted | None = None

    def add(self, delta: Delta) -> None:
        """Take the next delta."""
        match delta:
            case ToolCallStarted():
                self._close()
                self._open = delta
            case ToolCallDelta(arguments=arguments):
                self._pieces.append(arguments)
            case TextDelta(text=text) | ThinkingDelta(text=text):
                if self._open is not type(delta):
                    self._close()
                    self._open = type(delta)
                self._pieces.append(text)

    def closed(self) -> list[AnswerPart]:
        """Return the parts; no delta may follow."""
        self._close()
        return self._done

    def _close(self) -> None:
        text = "".join(self._pieces)
        match self._open:
            case ToolCallStarted(id=call_id, name=name):
                self._done.append(ToolCallPart(id=call_id, name=name, arguments=text or "{}"))
            case None:
                pass
            case kind:
                self._done.append(TextPart(text) if kind is TextDelta else ThinkingPart(text))
        self._open = None
        self._pieces = []
