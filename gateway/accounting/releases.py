"""Tells the quota of what has ended, off the path of any answer, as soon as Redis is there."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from redis.exceptions import ResponseError

from inference.transport.connection import RETRY_AFTER_S, Unreachable
from jobs.quota.claims import Ended

logger = logging.getLogger(__name__)

Tell = Callable[[Sequence[Ended]], Awaitable[object]]

# So many in one round trip; Redis does nothing else meanwhile.
_BATCH = 32
# With Redis away for long, leases have to end what was not told.
_MAX_WAITING = 10_000
_STOP_S = 1.0


class Releases:
    """Ends that must reach Redis, though nobody waits for them. Telling one twice is harmless."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._waiting: deque[Ended] = deque()
        self._task: asyncio.Task[None] | None = None

    def put(self, ended: Ended) -> None:
        """Have this told soon."""
        if len(self._waiting) >= _MAX_WAITING:
            logger.warning("Redis is away: the end of a request is not told, its lease ends it")
            return
        self._waiting.append(ended)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Tell what waits, but do not wait for a Redis that is away."""
        if self._task is None:
            return
        await asyncio.wait([self._task], timeout=_STOP_S)
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        while self._waiting:
            batch = [self._waiting[index] for index in range(min(_BATCH, len(self._waiting)))]
            try:
                await self._tell(batch)
            except Unreachable:
                await asyncio.sleep(RETRY_AFTER_S)
                continue
            except ResponseError:
                logger.exception("Redis refuses to end a request")
            for _ in batch:
                self._waiting.popleft()
