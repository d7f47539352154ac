"""Work that lasts, as an engine sees it: where it comes from, and what is said of it at its end.

The engine room knows no database. `WorkSource` is what it needs of one; `jobs.work` is one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

import msgspec

from inference.events import Event, Usage
from inference.fold import Answer
from inference.request import GenerationRequest
from inference.transport.records import Ending


class WorkItem(msgspec.Struct, frozen=True, kw_only=True):
    """One request that the engine has taken. `attempt` counts those before it, from 0.

    `logged`: callers follow its events, which go to its log. `alone`: it ran in engines that died,
    and is to run with no other work beside it, so that nothing else suffers should it be the cause.
    `preemptions` counts how often it gave its place to another request. `urgent`: its deadline was
    near when it was taken.
    """

    request: GenerationRequest
    attempt: int
    logged: bool = False
    alone: bool = False
    preemptions: int = 0
    urgent: bool = False


class WorkResult(msgspec.Struct, frozen=True, kw_only=True):
    """How one attempt at a piece of work ended. Times are in seconds of Unix time.

    `answer` is whole for `Ending.FINISHED`, and None otherwise. `events` are those of a logged one,
    from its first attempt on and with its last event. `detail` is a finish reason or an error code.
    `Ending.ENGINE_LOST` means that the engine died while it ran.
    """

    item: WorkItem
    ending: Ending
    detail: str
    message: str
    usage: Usage
    taken_at_s: float
    first_token_at_s: float | None
    ended_at_s: float
    answer: Answer | None = None
    events: tuple[Event, ...] = ()


class WorkSource(Protocol):
    """One engine's way to the work of its model. Called from one thread, never from the loop.

    Every method may raise what the database raises; what was not done then is done by asking
    again. Nothing is lost either way: what an engine has and does not end goes back with its lease.
    """

    def open(self) -> None:
        """Begin the engine's lease. Harmless when called again, and needed after it was lost."""

    def claim(self, limit: int, first: Collection[str] = ()) -> list[WorkItem]:
        """Take at most so many: what is named, if it waits, and the urgent before all, the others
        by turns of their teams."""

    def finish(self, results: Sequence[WorkResult]) -> None:
        """Keep what these came to, and what they cost, all or nothing.

        What the engine did not survive, or failed at, may be put back for another attempt.
        Of what is this engine's no more, nothing is kept: another has it.
        """

    def renew(self, running: Collection[str]) -> set[str]:
        """Renew the lease. Return those of the running requests that are to be broken off:
        cancelled, or not this engine's any more."""

    def give_back(self, request_ids: Collection[str], *, preempted: bool = False) -> None:
        """Put back what was taken and will not be ended here; no attempt at it counts.

        `preempted`: because its place was needed, which its `preemptions` count.
        """

    def close(self) -> None:
        """End the lease: all that is still this engine's goes back at once."""
