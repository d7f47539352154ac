"""What an engine's work came to, until its source has it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice

from inference.engine.source_thread import SourceThread
from inference.engine.work_attempt import WorkAttempt

logger = logging.getLogger(__name__)

# Results are kept together: so many, or those of so long. A transaction costs as much as many rows.
_AT_ONCE = 64
_GATHER_S = 0.1
_RETRY_AFTER_S = 1.0
# While the database does not take results, no more work is begun than leads to so many.
_MAX_WAITING = 512


class Outcomes:
    """Hands results and what is not to be ended here to the source, and again until it has them.

    `on_kept` is called for each attempt whose result was taken.
    """

    def __init__(self, thread: SourceThread, on_kept: Callable[[WorkAttempt], None]) -> None:
        self._thread = thread
        self._on_kept = on_kept
        self._ended: dict[str, WorkAttempt] = {}
        # Whether it was preempted.
        self._back: dict[str, bool] = {}
        self._some = asyncio.Event()
        self._many = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._ended

    def gives_back(self, request_id: str) -> bool:
        """Whether the source is yet to hear that this waits again."""
        return request_id in self._back

    def put(self, attempt: WorkAttempt) -> None:
        """Take an attempt that has ended."""
        self._ended[attempt.id] = attempt
        self._some.set()
        if len(self._ended) >= _AT_ONCE:
            self._many.set()
        if len(self._ended) >= _MAX_WAITING:
            self._room.clear()

    def give_back(self, request_id: str, *, preempted: bool = False) -> None:
        """Take what another engine is to run, or this one again. What it came to is forgotten."""
        self._ended.pop(request_id, None)
        self._back[request_id] = preempted
        self._some.set()

    async def room(self) -> None:
        """Wait while too many results wait to be kept."""
        await self._room.wait()

    async def run(self) -> None:
        """Hand over for ever."""
        while True:
            await self._some.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(_GATHER_S):
                    await self._many.wait()
            if not await self._hand_over():
                await asyncio.sleep(_RETRY_AFTER_S)

    async def flush(self) -> bool:
        """Hand over everything that is here. Return whether the source took it."""
        while self._ended or self._back:
            if not await self._hand_over():
                return False
        return True

    async def _hand_over(self) -> bool:
        """Hand over as much as goes together. Return whether the source took it."""
        if not (await self._keep() and await self._return()):
            return False
        if len(self._ended) < _AT_ONCE:
            self._many.clear()
        if not self._ended and not self._back:
            self._some.clear()
        return True

    async def _keep(self) -> bool:
        attempts = list(islice(self._ended.values(), _AT_ONCE))
        if not attempts:
            return True
        results = [attempt.result() for attempt in attempts]
        done = await self._thread.do(lambda source: source.finish(results))
        if error := done.exception():
            logger.error("What work came to is not kept yet; it is tried again", exc_info=error)
            return False
        for attempt in attempts:
            if self._ended.get(attempt.id) is attempt:
                del self._ended[attempt.id]
            self._on_kept(attempt)
        if len(self._ended) < _MAX_WAITING:
            self._room.set()
        return True

    async def _return(self) -> bool:
        for preempted in (False, True):
            back = [
                each for each, was_preempted in self._back.items() if was_preempted == preempted
            ]
            if back and not await self._give_back(back, preempted=preempted):
                return False
        return True

    async def _give_back(self, back: Sequence[str], *, preempted: bool) -> bool:
        done = await self._thread.do(lambda source: source.give_back(back, preempted=preempted))
        if error := done.exception():
            logger.error("Work is not given back yet; it is tried again", exc_info=error)
            return False
        for request_id in back:
            self._back.pop(request_id, None)
        return True
