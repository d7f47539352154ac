"""Calls of tools one after another, however an upstream mixes their pieces. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from inference.backends.answers import Blocks, CallPiece
from inference.events import Delta


class CallOrder:
    """Hands pieces of calls, which are counted from 0, on to the blocks of an answer.

    One call is open at a time. What comes of a later one meanwhile waits until the arguments of the
    open one are whole, or the answer ends.
    """

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._open = 0
        self._waiting: dict[int, list[CallPiece]] = {}

    def add(self, piece: CallPiece) -> Iterator[Delta]:
        """Yield what follows from a piece of a call."""
        if piece.index > self._open:
            self._waiting.setdefault(piece.index, []).append(piece)
            if len(self._waiting) > 1 or len(self._waiting[piece.index]) > 1:
                # What it waits for has not changed.
                return
        else:
            yield from self._blocks.add_call(piece)
        while self._waiting and not self._blocks.is_cut():
            yield from self._open_next()

    def end(self) -> Iterator[Delta]:
        """Yield what still waits."""
        while self._waiting:
            yield from self._open_next()

    def _open_next(self) -> Iterator[Delta]:
        self._open = min(self._waiting)
        for piece in self._waiting.pop(self._open):
            yield from self._blocks.add_call(piece)
