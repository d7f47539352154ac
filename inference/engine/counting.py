"""Counts prompts' tokens for those who only ask how many there are.

A count costs nothing and counts against no rate limit, so nobody's must keep others' waiting: each
has a deadline, ends when its caller leaves, and a team has no more than its share of the places.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from inference.backends.port import Backend
from inference.errors import ErrorCode, TandemError
from inference.events import Event, Failed, Finished, FinishReason, Usage
from inference.request import GenerationRequest
from inference.transport.frames import Cancel, QueueEntry
from inference.transport.intake import Intake

logger = logging.getLogger(__name__)

MOST = 128
"""So many counts are made at the same time; the next waits in the queue."""

MOST_OF_ONE_TEAM = 32
"""So many of them are one team's; its next is refused."""

LONGEST_S = 30.0
"""What a count may take, unless the request's own deadline is sooner."""

# Those that are made here are made one after another, but none waits for one that takes so long:
# an upstream or a tool's server is asked.
_PATIENCE_S = 1.0
_BROKEN = Failed(code=ErrorCode.INTERNAL, message="the engine could not count the tokens")
_LATE = Failed(code=ErrorCode.TIMEOUT, message="the tokens were not counted in time")
_CROWDED = Failed(
    code=ErrorCode.OVERLOADED,
    message=f"{MOST_OF_ONE_TEAM} counts of this team are being made already; try again later",
)

Put = Callable[[QueueEntry, int, Event], None]
"""Sends the event of that number to the gateway that asks."""


class _Count:
    """One count that is being made."""

    def __init__(self, entry: QueueEntry, task: asyncio.Task[None]) -> None:
        self.entry = entry
        self.task = task
        self._broken_off = False

    @property
    def team_id(self) -> int | None:
        """Whose it is."""
        return _team_of(self.entry)

    def break_off(self) -> None:
        """Cancel it, once: a second time would break off its cleaning up."""
        if not self._broken_off:
            self._broken_off = True
            self.task.cancel()


class Counting:
    """The counts of one engine: those that it takes from `intake`, and what comes of them."""

    def __init__(self, backend: Backend, intake: Intake, put: Put) -> None:
        self._backend = backend
        self._intake = intake
        self._put = put
        # By request and attempt, as cancels name them.
        self._running: dict[tuple[str, int], _Count] = {}

    @property
    def gateways(self) -> set[str]:
        """Those that wait for a count."""
        return {count.entry.gateway_id for count in self._running.values()}

    async def run(self) -> None:
        """Take counts and make them, for ever."""
        try:
            while True:
                if taken := await self._intake.take():
                    await self._begin(*taken)
                while len(self._running) >= MOST:
                    tasks = [count.task for count in self._running.values()]
                    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for count in self._running.values():
                count.break_off()

    def cancel(self, cancel: Cancel) -> None:
        """Break off a count that nobody waits for any more, if there is such a one."""
        if count := self._running.get((cancel.request_id, cancel.attempt)):
            count.break_off()

    def gateway_gone(self, gateway_id: str) -> None:
        """Break off what that gateway waited for."""
        for count in self._running.values():
            if count.entry.gateway_id == gateway_id:
                count.break_off()

    async def _begin(self, entry_id: bytes, entry: QueueEntry) -> None:
        request = entry.request
        key = request.id, entry.attempt
        if key in self._running:
            await self._intake.drop(entry_id)
            return
        team_id = _team_of(entry)
        teams = [count.team_id for count in self._running.values()]
        crowded = team_id is not None and teams.count(team_id) >= MOST_OF_ONE_TEAM
        task = asyncio.create_task(self._run(entry_id, entry, crowded=crowded))
        self._running[key] = _Count(entry, task)
        # A callback, because a task that is cancelled before its first step runs no code.
        task.add_done_callback(lambda ended: self._ended(entry, ended))
        if request.raw is None and not request.servers:
            await asyncio.wait([task], timeout=_PATIENCE_S)

    def _ended(self, entry: QueueEntry, task: asyncio.Task[None]) -> None:
        del self._running[entry.request.id, entry.attempt]
        if not task.cancelled() and (error := task.exception()):
            logger.error("Counting tokens failed", exc_info=error)
            self._put(entry, 1, _BROKEN)

    async def _run(self, entry_id: bytes, entry: QueueEntry, *, crowded: bool) -> None:
        if not await self._intake.confirm(entry_id, entry):
            self._put(entry, 1, Failed(code=ErrorCode.ENGINE_LOST, message="not confirmed"))
        elif crowded:
            self._put(entry, 1, _CROWDED)
        else:
            await self._count(entry)

    async def _count(self, entry: QueueEntry) -> None:
        seq = 1
        try:
            async with (
                asyncio.timeout(min(LONGEST_S, entry.request.deadline_s - time.time())),
                aclosing(self._events(entry.request)) as events,
            ):
                async for event in events:
                    self._put(entry, seq, event)
                    seq += 1
        except TimeoutError:
            self._put(entry, seq, _LATE)

    def _events(self, request: GenerationRequest) -> AsyncGenerator[Event]:
        """Return what comes of a count: what an upstream says of it, where that is passed on."""
        if request.raw is not None:
            return self._backend.generate(request)
        return self._counted(request)

    async def _counted(self, request: GenerationRequest) -> AsyncGenerator[Event]:
        try:
            tokens = await self._backend.count(request)
        except TandemError as error:
            yield Failed(code=error.code, message=error.message)
            return
        usage = Usage(prompt_tokens=tokens, cached_tokens=0, output_tokens=0)
        yield Finished(reason=FinishReason.END, usage=usage)


def _team_of(entry: QueueEntry) -> int | None:
    """Return the team that asks; None is the service itself."""
    owner = entry.request.owner
    return owner.team_id if owner else None
