"""One attempt at a piece of work, as the engine that makes it sees it."""

from __future__ import annotations

import asyncio
import time

from inference.backends.port import Tally
from inference.engine.meters import Measured
from inference.engine.splice import Splice, SpliceError
from inference.engine.work import WorkItem, WorkResult
from inference.errors import ErrorCode
from inference.events import (
    Event,
    Failed,
    Finished,
    ServerToolCall,
    ServerToolResult,
    Started,
)
from inference.fold import Parts
from inference.request import URGENCY
from inference.transport.log_writer import LogWriter
from inference.transport.records import Ending

_ENGINE_FAULTS = (ErrorCode.ENGINE_FAILED, ErrorCode.ENGINE_LOST)
_STOPPED = Failed(code=ErrorCode.ENGINE_LOST, message="the engine stopped")
_BROKEN_OFF = {
    Ending.CANCELLED: Failed(code=ErrorCode.CANCELLED, message="the request was cancelled"),
    Ending.TIMEOUT: Failed(
        code=ErrorCode.TIMEOUT, message="the request did not finish in time and was cancelled"
    ),
    Ending.ENGINE_LOST: _STOPPED,
}
_BROKEN = Failed(code=ErrorCode.INTERNAL, message="the engine could not run this request")
_CANNOT_GO_ON = Failed(
    code=ErrorCode.ENGINE_LOST,
    message="the engine stopped before the answer was complete, and another could not continue it",
)


class WorkAttempt:
    """What has been done for one item. `task` runs it; `end` is its last event, once there is one.

    `log` is where its events go while it runs, if its item is logged; of the last one `end_log`
    tells. `has_called`: a tool was run for it. Times are in seconds of Unix time.
    """

    def __init__(self, item: WorkItem) -> None:
        self.item = item
        self.log: LogWriter | None = None
        self.task: asyncio.Task[None]
        self.timer: asyncio.TimerHandle | None = None
        self.tally = Tally()
        self.end: Finished | Failed | None = None
        self.given_up = False
        self.preempted = False
        self.has_called = False
        self._cancelled = False
        self._ending = Ending.FAILED
        self._splice = Splice(())
        self._parts = Parts()
        self.taken_at_s = time.time()
        self._first_token_at_s: float | None = None
        self._first_tokens = 0
        self._ended_at_s = self.taken_at_s

    @property
    def id(self) -> str:
        """The id of the request."""
        return self.item.request.id

    @property
    def urgency(self) -> int:
        """The place of its lane: the most urgent one has the lowest."""
        return URGENCY[self.item.request.lane]

    async def open_log(self) -> None:
        """Learn what callers have seen already, if this is not the first engine that is at it."""
        if self.log is None:
            return
        await self.log.open()
        self._splice = Splice(self.log.events)
        for event in self.log.events:
            self._fold(event)

    def take(self, event: Event) -> bool:
        """Take the engine's next event. Return whether it may go on."""
        if self._first_token_at_s is None and not isinstance(event, Started | Finished | Failed):
            self._first_token_at_s = time.time()
            self._first_tokens = self.tally.output_tokens
        self.has_called = self.has_called or isinstance(event, ServerToolCall | ServerToolResult)
        try:
            fresh = self._splice.feed(event) if self.log is not None else event
        except SpliceError:
            fresh = _CANNOT_GO_ON
        match fresh:
            case None:
                pass
            case Finished():
                self._end(Ending.FINISHED, fresh)
            case Failed():
                self._end(Ending.FAILED, fresh)
            case _:
                self._fold(fresh)
                if self.log is not None:
                    self.log.put(fresh)
        return fresh is not _CANNOT_GO_ON

    def _fold(self, event: Event) -> None:
        if not isinstance(event, Started | Finished | Failed):
            self._parts.add(event)

    def _end(self, ending: Ending, event: Finished | Failed) -> None:
        if self.end is None:
            self._ending, self.end, self._ended_at_s = ending, event, time.time()

    def settle(self, *, engine_died: bool) -> None:
        """Note that the engine is through with it. Where it died, that is why it failed."""
        self._end(Ending.FAILED, _STOPPED if engine_died else _BROKEN)
        end = self.end
        if engine_died and isinstance(end, Failed) and end.code in _ENGINE_FAULTS:
            self._ending = Ending.ENGINE_LOST

    def break_off(self, ending: Ending) -> None:
        """Stop the engine: CANCELLED, TIMEOUT or ENGINE_LOST."""
        self._end(ending, _BROKEN_OFF[ending])
        self._cancel()

    def give_up(self) -> None:
        """Stop the engine and forget what it said: the item is not to be ended here."""
        self.given_up = True
        self._cancel()

    def preempt(self) -> None:
        """Give it up because realtime needs its place: it goes on later."""
        self.preempted = True
        self.give_up()

    @property
    def wasted_tokens(self) -> int:
        """What the engine has computed for it, and will again."""
        tally = self.tally
        return tally.prompt_tokens - tally.cached_tokens + tally.output_tokens

    def measured(self) -> Measured:
        """Return what was measured of an attempt that is over."""
        return Measured(
            lane=self.item.request.lane,
            queued_at_s=None,
            taken_at_s=self.taken_at_s,
            first_token_at_s=self._first_token_at_s,
            first_tokens=self._first_tokens,
            ended_at_s=time.time(),
            tally=self.tally,
        )

    @property
    def has_said(self) -> bool:
        """Whether the engine has put out any of the answer."""
        return self._first_token_at_s is not None

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or will as soon as it can."""
        return self.task.done() or self._cancelled

    def _cancel(self) -> None:
        # Once: a second time would break off the engine's cleaning up. The task's own word is no
        # sign of it: timeouts and cancel scopes within it cancel it for a moment, too.
        if not self.is_over:
            self._cancelled = True
            self.task.cancel()

    async def end_log(self) -> None:
        """Tell the log that the answer is whole, now that it is kept.

        Of a failure it hears nothing: whether another attempt follows is not the engine's to say.
        """
        if self.log is not None:
            await self.log.end(self.end if isinstance(self.end, Finished) else None)

    def result(self) -> WorkResult:
        """Return how it ended; `end` must be there."""
        assert self.end is not None
        finished = self.end if isinstance(self.end, Finished) else None
        return WorkResult(
            item=self.item,
            ending=self._ending,
            detail=finished.reason if finished else self.end.code,  # type: ignore[union-attr]
            message="" if finished else self.end.message,  # type: ignore[union-attr]
            usage=finished.usage if finished else self.tally.usage,
            taken_at_s=self.taken_at_s,
            first_token_at_s=self._first_token_at_s,
            ended_at_s=self._ended_at_s,
            answer=self._parts.answer(finished) if finished else None,
            events=(*self.log.events, self.end) if self.log is not None else (),
        )
