"""From a canonical request to its answer on the wire, whichever dialect it is in."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import Any, ClassVar, TypeVar

from gateway.accounting.desk import Ticket, Visit
from gateway.http.slow_reader import SlowReader
from gateway.http.sse import STREAM_HEADERS, Quiet
from gateway.metrics import count_fallback, count_refusal, count_run
from gateway.serving.choices import Choices
from gateway.serving.fallback import (
    HEADER,
    STREAM_WAIT_S,
    Reread,
    covers,
    find_fallback,
    handed_over,
    is_stranded,
)
from gateway.serving.prompts import PromptConsumer
from gateway.serving.served import Served
from gateway.serving.source import Encoder, Source
from inference.catalogue import ModelEntry
from inference.errors import TandemError
from inference.events import Failed
from inference.fold import Answer
from inference.request import GenerationRequest, Lane
from inference.transport.run import Bell, Run

logger = logging.getLogger(__name__)

T = TypeVar("T")


class AnswerConsumer(PromptConsumer):
    """For consumers that answer a prompt in realtime. `dialect` names it in trail and metrics."""

    dialect: ClassVar[str]
    _waits_for_room = False

    def visit(self, entry: ModelEntry, prompt: GenerationRequest, *, stream: bool) -> Visit:
        """Return what the front desk must know of the request."""
        return Visit(
            asked=self.request,
            principal=self.principal,
            entry=entry,
            prompt=prompt,
            dialect=self.dialect,
            stream=stream,
            ignored=self.ignored,
        )

    async def admit(self, visit: Visit) -> Ticket:
        """Let a request in by its limits and balance. Raises what the desk raises."""
        ticket = await self._let_in(visit)
        self.extra_headers += ticket.headers
        return ticket

    @asynccontextmanager
    async def running(self, visit: Visit, reread: Reread) -> AsyncIterator[Run]:
        """Let a request in and queue it; at the end of the block its ticket is closed.

        The run may be that of the model's fallback, which `reread` reads the request for. Raises
        `TandemError` as the desk and the dispatcher do.
        """
        served = await self._admit_all([visit])
        with _closing(served):
            yield await self._first_run(served, Bell(), reread)

    @asynccontextmanager
    async def choosing(self, visits: Sequence[Visit], reread: Reread) -> AsyncIterator[Choices]:
        """Let all the answers in that are asked for to one prompt, and queue the first.

        At the end of the block every ticket is closed. All are of one model, whichever that is.
        Raises `TandemError` as `running` does.
        """
        served = await self._admit_all(visits)
        bell = Bell()

        async def begin_others() -> list[Run]:
            return await _together(self._queue(each, bell) for each in served[1:])

        with _closing(served):
            first = await self._first_run(served, bell, reread)
            yield Choices(first, bell, begin_others if len(served) > 1 else None)

    async def _admit_all(self, visits: Sequence[Visit]) -> list[Served]:
        """Let all of these in, or none."""
        if len(visits) == 1:
            return [Served(visits[0], await self.admit(visits[0]))]
        tickets: dict[int, Ticket] = {}

        async def admit(number: int) -> None:
            tickets[number] = await self._let_in(visits[number])

        try:
            await _together(admit(number) for number in range(len(visits)))
        finally:
            if len(tickets) < len(visits):
                for ticket in tickets.values():
                    ticket.abandon()
        # They were let in one after another: after the last one the least is left.
        self.extra_headers += tickets[len(visits) - 1].headers
        return [Served(visit, tickets[number]) for number, visit in enumerate(visits)]

    async def _let_in(self, visit: Visit) -> Ticket:
        try:
            return await self.services.desk.admit(visit, self.services.directory.prices)
        except TandemError as error:
            count_refusal(self.dialect, visit.entry.id, error)
            raise

    async def _first_run(self, served: Sequence[Served], bell: Bell, reread: Reread) -> Run:
        """Queue the first of these, and return the run that answers it."""
        first = served[0]
        try:
            await self._queue(first, bell)
        except TandemError:
            if not await self._fall_back(served, bell, reread):
                raise
        else:
            await self._fall_back(served, bell, reread)
        assert first.run is not None, "no queue took it, and nothing was raised"
        return first.run

    async def _queue(self, served: Served, bell: Bell) -> Run:
        try:
            served.run = await self._submit(served.visit, bell)
        except TandemError as error:
            served.error = error
            raise
        return served.run

    async def _submit(self, visit: Visit, bell: Bell, attempt: int = 0) -> Run:
        """Queue a request that was let in.

        Only the first of several answers can be refused for want of room: when the others begin,
        it has begun to be told.
        """
        prompt, is_first = visit.prompt, visit.prompt.choice == 0
        waits = is_first and prompt.lane is Lane.FLEX
        self._waits_for_room |= waits
        return await self.services.dispatcher.submit(
            prompt,
            max_waiting=visit.entry.max_waiting if is_first else None,
            wait_s=self.services.config.FLEX_WAIT_S if waits else None,
            bell=bell,
            attempt=attempt,
        )

    async def _fall_back(self, served: Sequence[Served], bell: Bell, reread: Reread) -> bool:
        """Where the first cannot be answered by its model, have the fallback answer them all.

        Return whether that does. With a fallback, this waits until an answer has begun: nothing is
        sent before, and nobody is told of one model and answered by another. A stream that has not
        begun within `STREAM_WAIT_S` stays where it is.
        """
        first = served[0]
        entry = first.visit.entry
        other = find_fallback(self.services.directory.catalogue, self.principal, entry)
        if other is None:
            return False
        until_s = asyncio.get_running_loop().time() + STREAM_WAIT_S if first.visit.stream else None
        if first.run is not None:
            await _settled(first.run, until_s)
        if not is_stranded(first):
            return False
        before = self.ignored, list(self.extra_headers)
        try:
            read = await reread(other)
            answers = covers(entry, read[0]) and await self._hand_over(served, read, bell, until_s)
        except TandemError as error:
            logger.info("%s: not for %s: %s", self.request.public_id, other.id, error.code)
            answers = False
        if not answers:
            self.ignored, self.extra_headers = before
            return False
        logger.warning("%s: %s answers for %s", self.request.public_id, other.id, entry.id)
        count_fallback(entry.id, other.id)
        self.extra_headers.append((HEADER, other.id.encode()))
        return True

    async def _hand_over(
        self, served: Sequence[Served], read: Sequence[Visit], bell: Bell, until_s: float | None
    ) -> bool:
        """Give requests to the model that they were read for; say whether it answers the first.

        Otherwise that stays with the run it had. Raises `TandemError` where it is not let in.
        """
        first, failed = served[0], served[0].run
        visits = [handed_over(each, again) for each, again in zip(served, read, strict=True)]
        for each, visit in zip(served, visits, strict=True):
            await self.services.desk.hold(each.ticket, visit, self.services.directory.prices)
        run = await self._submit(visits[0], bell, attempt=failed.attempt + 1 if failed else 0)
        first.run = run
        first.ticket.pass_on(visits[0], run.attempt + 1)
        await _settled(run, until_s)
        if isinstance(run.end, Failed) and not run.text_sent:
            count_run(self.dialect, run)
            first.run = failed
            if failed is not None:
                failed.attempt = run.attempt
            return False
        if failed is not None:
            count_run(self.dialect, failed)
        for each, visit in zip(served, visits, strict=True):
            each.visit = visit
        for each in served[1:]:
            each.ticket.pass_on(each.visit, 1)
        return True

    async def relay(self, source: Source[T], encoder: Encoder[T]) -> None:
        """Stream events as the dialect's frames, to the last one.

        Raises `TandemError` if nothing was sent and nothing will be: it still can be a plain HTTP
        error then.
        """
        reader = SlowReader(self.base_send, self.services.config.STREAM_BUFFER_BYTES)
        quiet = Quiet(self.services.config.PING_INTERVAL_S, source.wake)
        begun = False
        try:
            while not encoder.over:
                events = await source.next()
                if not self.responding and events and (error := encoder.refusal(events[0])):
                    raise error
                begun = begun or bool(events)
                if events:
                    data = b"".join(map(encoder.feed, events))
                else:
                    # As long as it may be refused, its status is not told.
                    waits = self._waits_for_room and not begun
                    data = b"" if waits else encoder.keep_alive(begun=begun)
                if not data and not encoder.over:
                    continue
                if not self.responding:
                    await self.start(200, [*STREAM_HEADERS, self.identity, *self.extra_headers])
                if reader.is_behind(len(data)):
                    logger.warning(
                        "%s reads too slowly: its connection is dropped", self.request.public_id
                    )
                    reader.drop()
                    return
                await self.write(data, more=not encoder.over)
                quiet.sent()
        finally:
            quiet.stop()


async def rendered(answers: Iterable[Answer], render: Callable[[], bytes]) -> bytes:
    """Return the body that `render` makes of answers, without keeping other streams waiting.

    Log probabilities make an answer a hundred times as large.
    """
    scored = any(answer.logprobs for answer in answers)
    return await asyncio.to_thread(render) if scored else render()


def _closing(served: Sequence[Served]) -> ExitStack:
    """Return a block at whose end all of these are closed."""
    stack = ExitStack()
    for each in served:
        stack.callback(each.close)
    return stack


async def _settled(run: Run, until_s: float | None) -> None:
    """Wait until a run has begun to answer or has ended, but only up to this time of the loop."""
    with suppress(TimeoutError):
        async with asyncio.timeout_at(until_s):
            await run.settled()


async def _together(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Do all of these at once. Raises the first error, when the others have ended."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]
