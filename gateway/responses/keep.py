"""Keeps a response that is answered while its caller waits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable
from datetime import UTC, datetime
from typing import Protocol

from inference.errors import ErrorCode, TandemError
from inference.events import Event, Failed, Finished
from inference.transport.run import Run
from jobs.responses import ResponseEnd, completed, failed

logger = logging.getLogger(__name__)

# A database that is slow must not keep an answer from its caller; the writing goes on behind it.
_PATIENCE_S = 2.0


class Book(Protocol):
    """Where one response is written down. Both raise `TandemError` if it cannot be."""

    async def begin(self) -> None:
        """Write down that it has begun."""

    async def end(self, how: ResponseEnd, ended_at: datetime) -> None:
        """Write down how it ended."""


class Kept:
    """The events of a run, the last of which is given only after the response is kept.

    So whoever has the whole answer can read it again, and continue it. A streamed one, whose caller
    learns its id at its beginning, is written down from there on. A database that is away costs the
    keeping, not the answer. Without a `book` nothing is kept. `ended_at` is when the run ended.
    """

    def __init__(self, run: Run, book: Book | None, *, streamed: bool) -> None:
        self._run = run
        self._book = book
        self._writing: asyncio.Task[bool] | None = None
        if book is not None and streamed:
            self._writing = asyncio.create_task(_write(book.begin()))
        self.ended_at: datetime | None = None

    @property
    def ended_at_s(self) -> float:
        """The same in seconds of Unix time. It must have ended."""
        assert self.ended_at is not None, "the run goes on"
        return self.ended_at.timestamp()

    async def next(self) -> list[Event]:
        """Return every event that has come since the last call, waiting for one or for `wake`."""
        events = await self._run.next()
        if events and isinstance(events[-1], Finished | Failed):
            self._close(events[-1])
            if self._writing is not None:
                await asyncio.wait([self._writing], timeout=_PATIENCE_S)
        return events

    def wake(self) -> None:
        """Let a waiting `next` return, with nothing if nothing has come."""
        self._run.wake()

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Yield the events one by one, to the last."""
        while self.ended_at is None:
            for event in await self.next():
                yield event

    def close(self) -> asyncio.Task[bool] | None:
        """End the keeping; return what still is to be waited for, some time.

        A caller that left before the end has cancelled its response.
        """
        if self.ended_at is None:
            self._close(Failed(code=ErrorCode.CANCELLED, message="the client left"))
        return self._writing

    def _close(self, event: Finished | Failed) -> None:
        self.ended_at = datetime.now(UTC)
        # Who gets an error instead of an answer has no id to ask with.
        if self._book is not None and (self._writing or isinstance(event, Finished)):
            end = self._end(event)
            self._writing = asyncio.create_task(
                _finish(self._book, self._writing, end, self.ended_at)
            )

    def _end(self, event: Finished | Failed) -> ResponseEnd:
        if isinstance(event, Finished):
            return completed(self._run.answer.answer(event))
        return failed(event.code, event.message)


async def _finish(
    book: Book, begun: asyncio.Task[bool] | None, end: ResponseEnd, ended_at: datetime
) -> bool:
    if await (_write(book.begin()) if begun is None else begun):
        return await _write(book.end(end, ended_at))
    return False


async def _write(writing: Awaitable[None]) -> bool:
    try:
        await writing
    except TandemError as error:
        logger.warning("a response is not kept: %s", error.message)
        return False
    return True
