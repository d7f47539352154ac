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
    TokenLogprob,
    ToolCallDelta,
    ToolCallStarted,
)
from inference.request import TextPart, ThinkingPart, ToolCallPart

AnswerPart = TextPart | ThinkingPart | ToolCallPart


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A whole answer: its parts, in the order they came, and how it ended.

    `logprobs` has those of every text part, one after another; it is empty where nobody asked.
    """

    parts: tuple[AnswerPart, ...]
    finished: Finished
    logprobs: tuple[tuple[TokenLogprob, ...], ...] = ()

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
        self._scores: list[TokenLogprob] = []
        self._logprobs: list[tuple[TokenLogprob, ...]] = []
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
                if isinstance(delta, TextDelta):
                    self._scores += delta.logprobs

    def answer(self, finished: Finished) -> Answer:
        """Return the whole answer; no delta may follow."""
        parts = tuple(self.closed())
        scored = any(self._logprobs)
        return Answer(
            parts=parts, finished=finished, logprobs=tuple(self._logprobs) if scored else ()
        )

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
