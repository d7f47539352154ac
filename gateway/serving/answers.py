"""From a canonical request to its answer on the wire, whichever dialect it is in."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, ClassVar, TypeVar

from gateway.accounting.desk import Ticket, Visit
from gateway.http.slow_reader import SlowReader
from gateway.http.sse import STREAM_HEADERS, Quiet
from gateway.metrics import count_refusal, count_run
from gateway.serving.choices import Choices
from gateway.serving.prompts import PromptConsumer
from gateway.serving.source import Encoder, Source
from inference.catalogue import ModelEntry
from inference.errors import TandemError
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
    async def running(self, visit: Visit) -> AsyncIterator[Run]:
        """Let a request in and queue it; at the end of the block its ticket is closed.

        Raises `TandemError` as the desk and the dispatcher do.
        """
        ticket = await self.admit(visit)
        async with self._served(visit, ticket, Bell()) as run:
            yield run

    @asynccontextmanager
    async def choosing(self, visits: Sequence[Visit]) -> AsyncIterator[Choices]:
        """Let all the answers in that are asked for to one prompt, and queue the first.

        At the end of the block every ticket is closed. Raises `TandemError` as `running` does.
        """
        waiting = list(zip(visits, await self._admit_all(visits), strict=True))
        bell = Bell()
        async with AsyncExitStack() as begun:
            begun.callback(_abandon, waiting)

            async def begin() -> Run:
                visit, ticket = waiting.pop(0)
                return await begun.enter_async_context(self._served(visit, ticket, bell))

            async def begin_others() -> list[Run]:
                return await _together(begin() for _ in range(len(waiting)))

            yield Choices(await begin(), bell, begin_others if waiting else None)

    async def _admit_all(self, visits: Sequence[Visit]) -> list[Ticket]:
        """Let all of these in, or none."""
        if len(visits) == 1:
            return [await self.admit(visits[0])]
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
        return [tickets[number] for number in range(len(visits))]

    async def _let_in(self, visit: Visit) -> Ticket:
        try:
            return await self.services.desk.admit(visit, self.services.directory.prices)
        except TandemError as error:
            count_refusal(self.dialect, visit.entry.id, error)
            raise

    @asynccontextmanager
    async def _served(self, visit: Visit, ticket: Ticket, bell: Bell) -> AsyncIterator[Run]:
        """Queue a request that was let in, and close its ticket at the end of the block.

        Only the first of several answers can be refused for want of room: when the others begin,
        it has begun to be told.
        """
        prompt, is_first = visit.prompt, visit.prompt.choice == 0
        waits = is_first and prompt.lane is Lane.FLEX
        self._waits_for_room |= waits
        try:
            run = await self.services.dispatcher.submit(
                prompt,
                max_waiting=visit.entry.max_waiting if is_first else None,
                wait_s=self.services.config.FLEX_WAIT_S if waits else None,
                bell=bell,
            )
        except TandemError as error:
            ticket.refuse(error)
            raise
        except asyncio.CancelledError:
            ticket.abandon()
            raise
        try:
            yield run
        finally:
            run.close()
            ticket.close(run)
            count_run(self.dialect, run)

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


def _abandon(waiting: Sequence[tuple[Visit, Ticket]]) -> None:
    """Close the tickets of answers that were never queued."""
    for _, ticket in waiting:
        ticket.abandon()


async def _together(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Do all of these at once. Raises the first error, when the others have ended."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]
