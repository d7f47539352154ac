"""One attempt at a request, as the engine that makes it sees it."""

from __future__ import annotations

import asyncio
import socket
import time

from inference.backends.port import Tally
from inference.engine.meters import Measured
from inference.errors import ErrorCode
from inference.events import Event, Failed, Finished, Started, Usage
from inference.transport.frames import CancelReason, QueueEntry
from inference.transport.records import Completed, Ending

_HOST = socket.gethostname()
_BY_REASON = {
    CancelReason.CLIENT_LEFT: Ending.CANCELLED,
    CancelReason.TIMEOUT: Ending.TIMEOUT,
    CancelReason.SUPERSEDED: Ending.SUPERSEDED,
}
# The gateway may still find another engine for it.
_ENGINE_FAULTS = (ErrorCode.ENGINE_FAILED, ErrorCode.ENGINE_LOST)


class Attempt:
    """What has been done for one queue entry. `task` runs it; `farewell` is said if it is aborted.

    Times are in seconds of Unix time. It was put on its queue at `queued_at_s`, by Redis' clock.
    """

    def __init__(self, entry: QueueEntry, queued_at_s: float) -> None:
        self.entry = entry
        self.task: asyncio.Task[None]
        self.tally = Tally()
        self.farewell: Failed | None = None
        self._next_seq = 1
        self._queued_at_s = queued_at_s
        self._taken_at_s = time.time()
        self._first_token_at_s: float | None = None
        self._first_tokens = 0
        self._ending = Ending.ENGINE_LOST
        self._detail = ""
        self._message = ""
        self._usage: Usage | None = None
        self._confirmed = False
        self._aborted = False

    @property
    def key(self) -> tuple[str, int]:
        """Which attempt at which request it is."""
        return self.entry.request.id, self.entry.attempt

    def confirmed(self) -> None:
        """Note that the request is off its queue and this engine's own."""
        self._confirmed = True

    def next_seq(self, event: Event) -> int:
        """Note an event that is about to be said, and return its number."""
        match event:
            case Finished(reason=reason, usage=usage):
                self._ending, self._detail, self._usage = Ending.FINISHED, reason, usage
            case Failed(code=code, message=message):
                if not self._detail:
                    fault = code in _ENGINE_FAULTS
                    self._ending = Ending.ENGINE_LOST if fault else Ending.FAILED
                    self._detail, self._message = code, message
            case Started():
                pass
            case _:
                if self._first_token_at_s is None:
                    self._first_token_at_s = time.time()
                    self._first_tokens = self.tally.output_tokens
        seq, self._next_seq = self._next_seq, self._next_seq + 1
        return seq

    def abort(self, ending: Ending, farewell: Failed | None = None) -> None:
        """Break the run off. Once: a second cancel would break off the engine's cleaning up.

        Whether the task is being cancelled is no sign of that: timeouts and cancel scopes within it
        cancel it for a moment, too.
        """
        if not self._aborted:
            self._aborted = True
            if not self._detail:
                self._ending, self._detail = ending, ending
            self.farewell = farewell
            self.task.cancel()

    def cancel(self, reason: CancelReason) -> None:
        """Break the run off because its gateway says so."""
        self.abort(_BY_REASON[reason])

    def measured(self) -> Measured | None:
        """Return what was measured of an attempt that is over; None if the request was not ours."""
        if not self._confirmed:
            return None
        return Measured(
            lane=self.entry.request.lane,
            queued_at_s=self._queued_at_s,
            taken_at_s=self._taken_at_s,
            first_token_at_s=self._first_token_at_s,
            first_tokens=self._first_tokens,
            ended_at_s=time.time(),
            tally=self.tally,
        )

    def record(self, engine_id: str) -> Completed | None:
        """Return the record of an attempt that is over; None if there is nothing to account for."""
        request = self.entry.request
        if request.owner is None or not self._confirmed:
            return None
        usage = self._usage or self.tally.usage
        return Completed(
            request_id=request.id,
            attempt=self.entry.attempt,
            team_id=request.owner.team_id,
            key_id=request.owner.key_id,
            model=request.model,
            lane=request.lane,
            engine_id=engine_id,
            host=_HOST,
            taken_at_s=self._taken_at_s,
            first_token_at_s=self._first_token_at_s,
            ended_at_s=time.time(),
            ending=self._ending,
            detail=self._detail,
            message=self._message,
            usage=usage if request.counts_prompt else usage.without_prompt(),
        )
