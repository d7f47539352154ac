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
    Raw,
    RawAnswer,
    RawFrame,
    ServerToolCall,
    ServerToolResult,
    Started,
    TextDelta,
    ThinkingDelta,
    TokenLogprob,
    ToolCallDelta,
    ToolCallStarted,
)
from inference.raw_error import error_of
from inference.request import (
    ServerToolCallPart,
    ServerToolResultPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)

AnswerPart = TextPart | ThinkingPart | ToolCallPart | ServerToolCallPart | ServerToolResultPart


class RawPart(msgspec.Struct, frozen=True, tag="raw"):
    """An answer as an upstream said it: one JSON message, or the frames of a stream."""

    data: bytes


KeptPart = AnswerPart | RawPart


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A whole answer: its parts, in the order they came, and how it ended.

    `logprobs` has those of every text part, one after another; it is empty where nobody asked.
    `raw` stands in place of the parts where the caller is to have what an upstream said as it is.
    """

    parts: tuple[AnswerPart, ...]
    finished: Finished
    logprobs: tuple[tuple[TokenLogprob, ...], ...] = ()
    raw: RawPart | None = None

    @property
    def kept(self) -> tuple[KeptPart, ...]:
        """What the trail keeps of it."""
        return self.parts if self.raw is None else (self.raw,)

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
                return parts.answer(event)
            case Failed():
                raise error_of(event)
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
        self._scores: list[TokenLogprob] = []
        self._logprobs: list[tuple[TokenLogprob, ...]] = []
        self._open: type[TextDelta | ThinkingDelta] | ToolCallStarted | None = None
        self._raw: list[bytes] = []

    def add(self, delta: Delta | Raw) -> None:
        """Take the next delta, or what an upstream said."""
        match delta:
            case RawFrame(data=data) | RawAnswer(body=data):
                self._raw.append(data)
            case ToolCallStarted():
                self._close()
                self._open = delta
            case ToolCallDelta(arguments=arguments):
                self._pieces.append(arguments)
            case ServerToolCall() | ServerToolResult():
                self._close()
                self._done.append(_whole(delta))
            case TextDelta(text=text) | ThinkingDelta(text=text):
                if self._open is not type(delta):
                    self._close()
                    self._open = type(delta)
                self._pieces.append(text)
                if isinstance(delta, TextDelta):
                    self._scores += delta.logprobs

    def answer(self, finished: Finished) -> Answer:
        """Return the whole answer; no delta may follow."""
        parts = tuple(self.closed())
        scored = any(self._logprobs)
        return Answer(
            parts=parts,
            finished=finished,
            logprobs=tuple(self._logprobs) if scored else (),
            raw=RawPart(b"".join(self._raw)) if self._raw else None,
        )

    def kept(self) -> list[KeptPart]:
        """Return what the trail keeps of the answer; no delta may follow."""
        return [RawPart(b"".join(self._raw))] if self._raw else [*self.closed()]

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
            case kind if kind is TextDelta:
                self._done.append(TextPart(text))
                self._logprobs.append(tuple(self._scores))
                self._scores = []
            case _:
                self._done.append(ThinkingPart(text))
        self._open = None
        self._pieces = []


def _whole(event: ServerToolCall | ServerToolResult) -> ServerToolCallPart | ServerToolResultPart:
    if isinstance(event, ServerToolCall):
        return ServerToolCallPart(
            id=event.id, server=event.server, name=event.name, arguments=event.arguments
        )
    return ServerToolResultPart(call_id=event.call_id, text=event.text, is_error=event.is_error)
