"""From what was said, one message after another, to turns as templates need them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from gateway.dialects.placeholder import NOTICE, REMINDER
from inference.request import CacheMark, Message, Part, Role, TextPart, ToolResultPart


class Conversation(NamedTuple):
    """The turns, and the last breakpoint that stands in them."""

    messages: tuple[Message, ...]
    cache_mark: CacheMark | None


class Piece(NamedTuple):
    """One part; `marked`: the caller wants everything up to it cached."""

    part: Part
    marked: bool = False


class Turn(NamedTuple):
    """What one role says. Without pieces it is left out."""

    role: Role
    pieces: list[Piece]


def assemble(system: Sequence[str], turns: Sequence[Turn], *, marked: bool = False) -> Conversation:
    """Return the canonical turns, with the system's entries before them.

    The entries are joined by line: they are written apart and rarely end in a line break. `marked`:
    a breakpoint stands on any of them, and so for the whole of the system prompt.
    """
    blind = any(piece.part is REMINDER for turn in turns for piece in turn.pieces)
    text = "\n".join(text for text in (*system, NOTICE if blind else "") if text)
    said = [Turn(Role.SYSTEM, [Piece(TextPart(text), marked)])] if text else []
    merged = list(_alternating([*said, *turns]))
    return Conversation(
        tuple(
            Message(role=turn.role, parts=tuple(piece.part for piece in turn.pieces))
            for turn in merged
        ),
        _last_mark(merged),
    )


def _alternating(turns: Iterable[Turn]) -> Iterator[Turn]:
    """Merge neighbours of one role into one turn, as the APIs promise and templates need.

    Results come first in a turn: templates want them right after the calls.
    """
    spoken = (turn for turn in turns if turn.pieces)
    for role, group in groupby(spoken, key=lambda turn: turn.role):
        pieces = [piece for turn in group for piece in turn.pieces]
        pieces.sort(key=lambda piece: not isinstance(piece.part, ToolResultPart))
        yield Turn(role, pieces)


def _last_mark(turns: Sequence[Turn]) -> CacheMark | None:
    for message in range(len(turns) - 1, -1, -1):
        pieces = turns[message].pieces
        for part in range(len(pieces) - 1, -1, -1):
            if pieces[part].marked:
                return CacheMark(message=message, part=part)
    return None
