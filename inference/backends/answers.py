"""From what an engine puts out to the events of an answer.

A parser may mix what it finds; an answer is one block after another. So whatever comes while a
call is open waits until the call is over, and space around calls is nobody's text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import uuid_utils

from inference.arguments import ArgumentsStream
from inference.events import Delta, TextDelta, ThinkingDelta, ToolCallDelta, ToolCallStarted


class ParsedFunction(Protocol):
    """A piece of a call: its name comes with the first, its arguments piece by piece."""

    @property
    def name(self) -> str | None:
        """The tool's name."""

    @property
    def arguments(self) -> str | None:
        """More of the arguments' JSON."""


class ParsedCall(Protocol):
    """A piece of one of the calls."""

    @property
    def index(self) -> int:
        """Which call it belongs to."""

    @property
    def function(self) -> ParsedFunction | None:
        """What there is of it."""


class Parsed(Protocol):
    """What a parser made of one step's output."""

    @property
    def reasoning(self) -> str | None:
        """More of the thinking."""

    @property
    def content(self) -> str | None:
        """More of the text."""

    @property
    def tool_calls(self) -> Iterable[ParsedCall]:
        """More of calls."""


@dataclass(frozen=True, slots=True)
class FunctionPiece:
    """A `ParsedFunction`, for output that no parser has to take apart."""

    name: str | None = None
    arguments: str | None = None


@dataclass(frozen=True, slots=True)
class CallPiece:
    """A `ParsedCall`, likewise."""

    index: int
    function: FunctionPiece


@dataclass(frozen=True, slots=True)
class OutputPiece:
    """What there is of a step's output, likewise."""

    reasoning: str | None = None
    content: str | None = None
    tool_calls: Sequence[CallPiece] = ()


class Blocks:
    """Puts parsed output into blocks: thinking, text and calls, one open at a time.

    `called` says whether any call began. With `one_call`, all after the first call is dropped,
    and `full` says that more has come.
    """

    def __init__(self, *, one_call: bool = False) -> None:
        self.called = False
        self.full = False
        self._one_call = one_call
        self._call: _Call | None = None
        self._waiting: list[TextDelta | ThinkingDelta] = []
        self._space = ""
        self._in_text = False

    def add(self, parsed: Parsed) -> Iterator[Delta]:
        """Yield the events that follow from one step's output."""
        if parsed.reasoning:
            yield from self._say(ThinkingDelta(parsed.reasoning))
        if parsed.content:
            yield from self.add_text(parsed.content)
        for piece in parsed.tool_calls:
            yield from self.add_call(piece)

    def add_text(self, text: str) -> Iterator[Delta]:
        """Yield the events that follow from more text."""
        yield from self._say(TextDelta(text))

    def add_call(self, piece: ParsedCall) -> Iterator[Delta]:
        """Yield the events that follow from a piece of a call."""
        function = piece.function
        if self.full or function is None:
            return
        if self._call is None or piece.index > self._call.index:
            if not function.name:
                return
            if self.called and self._one_call:
                self.full = True
                return
            yield from self._close_call()
            yield from self._open_call(piece.index, function.name)
        if self._call and piece.index == self._call.index and function.arguments:
            yield from self._call.add(function.arguments)

    def end(self) -> Iterator[Delta]:
        """The output is over: yield what is still to be said. Space alone is not."""
        yield from self._close_call()

    def is_cut(self) -> bool:
        """Say whether the last call stopped in the middle of its arguments. Ask before `end`."""
        return self._call is not None and not self._call.is_whole()

    def _say(self, delta: TextDelta | ThinkingDelta) -> Iterator[Delta]:
        if self._call is not None:
            self._waiting.append(delta)
        elif isinstance(delta, ThinkingDelta):
            self._in_text = False
            yield delta
        elif self._in_text or delta.text.strip():
            self._in_text = True
            text, self._space = self._space + delta.text, ""
            yield TextDelta(text)
        else:
            self._space += delta.text

    def _open_call(self, index: int, name: str) -> Iterator[Delta]:
        self.called = True
        self._space, self._in_text = "", False
        self._call = _Call(index)
        yield ToolCallStarted(id=str(uuid_utils.uuid7()), name=name)

    def _close_call(self) -> Iterator[Delta]:
        if self._call is None:
            return
        yield from self._call.end()
        self._call = None
        waiting, self._waiting = self._waiting, []
        for delta in waiting:
            yield from self._say(delta)


class _Call:
    """The call that is open."""

    def __init__(self, index: int) -> None:
        self.index = index
        self._raw: list[str] = []
        self._arguments = ArgumentsStream()

    def add(self, fragment: str) -> Iterator[Delta]:
        self._raw.append(fragment)
        if text := self._arguments.feed(fragment):
            yield ToolCallDelta(text)

    def end(self) -> Iterator[Delta]:
        if text := self._arguments.finish():
            yield ToolCallDelta(text)

    def is_whole(self) -> bool:
        try:
            json.loads("".join(self._raw))
        except (ValueError, RecursionError):
            return False
        return True
