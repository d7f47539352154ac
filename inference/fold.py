"""Folds a stream of events into one whole answer: the only way a non-streamed answer is made."""

from __future__ import annotations

from collections.abc import AsyncIterable

import msgspec

from inference.errors import ErrorCode, TandemError
from inference.events import Event, Failed, Finished, Started, TextDelta


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer: its text and how it ended."""

    text: str
    finished: Finished


async def fold(events: AsyncIterable[Event]) -> Answer:
    """Return the whole answer. Raises `TandemError` if the run failed or never ended."""
    pieces: list[str] = []
    async for event in events:
        match event:
            case TextDelta(text=text):
                pieces.append(text)
            case Finished():
                return Answer(text="".join(pieces), finished=event)
            case Failed(code=code, message=message):
                raise TandemError(code, message)
            case Started():
                pass
    raise TandemError(ErrorCode.ENGINE_LOST, "the answer ended without its final event")
