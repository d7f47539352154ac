"""Joins a second attempt at a request to what callers have seen of the first.

The second engine begins at the beginning. With the same seed it says the same again, though perhaps
in other pieces: that much is not said twice, and from there on the answer goes on. Tools that the
server runs are run again; where they come to something else, so does the answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from msgspec.structs import replace

from inference.events import (
    Event,
    Failed,
    Finished,
    RawAnswer,
    RawFrame,
    ServerToolCall,
    ServerToolResult,
    Started,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallStarted,
)

_Piece = TextDelta | ThinkingDelta | ToolCallDelta


class SpliceError(Exception):
    """The second attempt says something else than the first: the answer cannot go on."""


class _Run:
    """Neighbouring pieces of one kind that were said, as far as they were not said again yet.

    `tokens` counts the log probabilities that came with them.
    """

    def __init__(self, kind: type[_Piece]) -> None:
        self.kind = kind
        self.text = ""
        self.tokens = 0


class Splice:
    """What of an attempt's events is still to be said, after `said` has been."""

    def __init__(self, said: Iterable[Event]) -> None:
        self._started = False
        self._said: deque[ToolCallStarted | ServerToolCall | ServerToolResult | _Run] = deque()
        # What callers have seen of this attempt's calls: each attempt makes up ids of its own.
        self._ids: dict[str, str] = {}
        for event in said:
            self._note(event)

    def feed(self, event: Event) -> Event | None:
        """Return the next event, or what of it is new; None if it was said already.

        Raises `SpliceError` where it is not what was said.
        """
        match event:
            case Started():
                repeated, self._started = self._started, True
                return None if repeated else event
            case Failed() | RawFrame() | RawAnswer():
                # Nobody follows raw answers: each attempt's goes to a new reader.
                return event
            case Finished():
                self._skip_what_is_over()
                if self._said:
                    raise SpliceError
                return event
            case ToolCallStarted():
                return self._call(event)
            case ServerToolCall():
                return self._server_call(event)
            case ServerToolResult():
                return self._server_result(event)
            case _:
                return self._piece(event)

    def _note(self, event: Event) -> None:
        match event:
            case Started():
                self._started = True
            case ToolCallStarted() | ServerToolCall() | ServerToolResult():
                self._said.append(event)
            case TextDelta() | ThinkingDelta() | ToolCallDelta():
                last = self._said[-1] if self._said else None
                if not isinstance(last, _Run) or last.kind is not type(event):
                    last = _Run(type(event))
                    self._said.append(last)
                last.text += _text(event)
                last.tokens += len(event.logprobs) if isinstance(event, TextDelta) else 0
            case _:
                pass

    def _skip_what_is_over(self, kind: type[_Piece] | None = None) -> None:
        """Leave a run that was said again whole, unless more of its kind has come."""
        first = self._said[0] if self._said else None
        if isinstance(first, _Run) and not first.text and first.kind is not kind:
            self._said.popleft()

    def _call(self, event: ToolCallStarted) -> Event | None:
        self._skip_what_is_over()
        if not self._said:
            return event
        first = self._said.popleft()
        # Each attempt makes up ids of its own.
        if not isinstance(first, ToolCallStarted) or first.name != event.name:
            raise SpliceError
        return None

    def _server_call(self, event: ServerToolCall) -> Event | None:
        self._skip_what_is_over()
        if not self._said:
            return event
        first = self._said.popleft()
        if not isinstance(first, ServerToolCall):
            raise SpliceError
        if replace(first, id=event.id) != event:
            raise SpliceError
        self._ids[event.id] = first.id
        return None

    def _server_result(self, event: ServerToolResult) -> Event | None:
        """A tool may say something else the second time: what follows shows whether it matters."""
        self._skip_what_is_over()
        if not self._said:
            return replace(event, call_id=self._ids.get(event.call_id, event.call_id))
        if not isinstance(self._said.popleft(), ServerToolResult):
            raise SpliceError
        return None

    def _piece(self, event: _Piece) -> Event | None:
        self._skip_what_is_over(type(event))
        if not self._said:
            return event
        first = self._said[0]
        if not isinstance(first, _Run) or first.kind is not type(event):
            raise SpliceError
        text = _text(event)
        if first.text.startswith(text):
            first.text = first.text[len(text) :]
            first.tokens -= len(event.logprobs) if isinstance(event, TextDelta) else 0
            return None
        if not text.startswith(first.text) or len(self._said) > 1:
            raise SpliceError
        self._said.popleft()
        return _rest(event, len(first.text), max(0, first.tokens))


def _text(event: _Piece) -> str:
    return event.arguments if isinstance(event, ToolCallDelta) else event.text


def _rest(event: _Piece, characters: int, tokens: int) -> Event:
    """Return a piece without what was said of it."""
    match event:
        case TextDelta(text=text, logprobs=logprobs):
            return TextDelta(text[characters:], logprobs[tokens:])
        case ThinkingDelta(text=text):
            return ThinkingDelta(text[characters:])
        case ToolCallDelta(arguments=arguments):
            return ToolCallDelta(arguments[characters:])
