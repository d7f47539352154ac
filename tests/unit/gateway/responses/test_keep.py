"""Keeping a response that its caller waits for."""

from __future__ import annotations

import asyncio
from datetime import datetime

from gateway.responses.keep import Kept
from inference.errors import ErrorCode, TandemError
from inference.events import (
    Event,
    Failed,
    Finished,
    FinishReason,
    Started,
    TextDelta,
    Usage,
)
from inference.request import GenerationRequest, Message, Role, Sampling, TextPart
from inference.transport.frames import Frame
from inference.transport.run import Run
from jobs.models import StoredResponse
from jobs.responses import ResponseEnd

Status = StoredResponse.Status
USAGE = Usage(prompt_tokens=1, cached_tokens=0, output_tokens=1)
DONE = Finished(reason=FinishReason.END, usage=USAGE)


class Book:
    """What was written, in order. `gate` holds the end back; `broken` refuses everything."""

    def __init__(self, *, broken: bool = False) -> None:
        self.written: list[str | ResponseEnd] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self._broken = broken

    async def begin(self) -> None:
        if self._broken:
            raise TandemError(ErrorCode.UNAVAILABLE, "no database")
        self.written.append("begun")

    async def end(self, how: ResponseEnd, ended_at: datetime) -> None:
        await self.gate.wait()
        if self._broken:
            raise TandemError(ErrorCode.UNAVAILABLE, "no database")
        self.written.append(how)

    @property
    def last(self) -> ResponseEnd:
        assert isinstance(self.written[-1], ResponseEnd)
        return self.written[-1]


def a_run(*events: Event) -> Run:
    request = GenerationRequest(
        id="r",
        model="m",
        messages=(Message(role=Role.USER, parts=(TextPart("hi"),)),),
        sampling=Sampling(max_tokens=5),
        deadline_s=0,
    )
    run = Run(request, "q", lambda run: None)
    for seq, event in enumerate(events):
        run.receive(Frame(request_id="r", attempt=0, engine_id="e", seq=seq, body=event))
    return run


def keep(book: Book, run: Run, *, streamed: bool) -> Kept:
    return Kept(run, book, streamed=streamed)


async def test_the_last_event_comes_after_the_response_is_kept() -> None:
    book = Book()
    book.gate.clear()
    kept = keep(book, a_run(Started(prompt_tokens=1), TextDelta("a"), DONE), streamed=True)
    waiting = asyncio.create_task(kept.next())
    await asyncio.sleep(0)
    assert not waiting.done()
    book.gate.set()
    assert (await waiting)[-1] == DONE
    assert book.written[0] == "begun"
    assert book.last.status == Status.COMPLETED
    assert book.last.answer is not None
    assert book.last.answer.text == "a"


async def test_a_streamed_one_is_written_down_from_its_beginning() -> None:
    book = Book()
    kept = keep(book, a_run(), streamed=True)
    await asyncio.sleep(0)
    assert book.written == ["begun"]
    assert kept.close() is not None


async def test_one_that_is_not_streamed_is_written_down_at_its_end() -> None:
    book = Book()
    kept = keep(book, a_run(Started(prompt_tokens=1), TextDelta("a"), DONE), streamed=False)
    assert book.written == []
    assert [event async for event in kept][-1] == DONE
    assert book.written[0] == "begun"
    assert book.last.status == Status.COMPLETED


async def test_a_caller_that_leaves_has_cancelled_its_response() -> None:
    book = Book()
    kept = keep(book, a_run(Started(prompt_tokens=1)), streamed=True)
    await kept.next()
    writing = kept.close()
    assert writing is not None
    await writing
    assert book.last.status == Status.CANCELLED


async def test_of_a_failure_that_had_no_stream_nothing_is_kept() -> None:
    book = Book()
    kept = keep(book, a_run(Failed(code=ErrorCode.TIMEOUT, message="late")), streamed=False)
    await kept.next()
    assert book.written == []


async def test_a_stream_that_fails_is_kept_as_failed() -> None:
    book = Book()
    kept = keep(book, a_run(Failed(code=ErrorCode.TIMEOUT, message="late")), streamed=True)
    await kept.next()
    assert (book.last.status, book.last.error_code) == (Status.FAILED, "timeout")
    assert kept.close() is not None
    assert len(book.written) == 2


async def test_a_database_that_is_away_costs_the_keeping_and_not_the_answer() -> None:
    book = Book(broken=True)
    kept = keep(book, a_run(Started(prompt_tokens=1), TextDelta("a"), DONE), streamed=True)
    assert (await kept.next())[-1] == DONE
    assert book.written == []


async def test_without_a_book_only_the_end_is_noted() -> None:
    kept = Kept(a_run(Started(prompt_tokens=1), TextDelta("a"), DONE), None, streamed=True)
    assert [event async for event in kept][-1] == DONE
    assert kept.ended_at_s > 0
    assert kept.close() is None
