"""Tells the quota of what has ended, off the path of any answer, as soon as Redis is there."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress

from redis.exceptions import ResponseError

from inference.transport.connection import RETRY_AFTER_S, Unreachable

logger = logging.getLogger(__name__)

Command = Callable[[], Awaitable[object]]

# No more than that at a time: releases must not take every connection from those who wait.
_BATCH = 8
# With Redis away for long, leases have to end what was not told.
_MAX_WAITING = 10_000
_STOP_S = 1.0


class Releases:
    """Commands that must reach Redis, though nobody waits for them. Doing one twice is harmless."""

    def __init__(self) -> None:
        self._waiting: deque[Command] = deque()
        self._task: asyncio.Task[None] | None = None

    def put(self, command: Command) -> None:
        """Have a command done soon."""
        if len(self._waiting) >= _MAX_WAITING:
            logger.warning("Redis is away: the end of a request is not told, its lease ends it")
            return
        self._waiting.append(command)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Do what waits, but do not wait for a Redis that is away."""
        if self._task is None:
            return
        await asyncio.wait([self._task], timeout=_STOP_S)
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]
            done = await asyncio.gather(*(self._do(command) for command in batch))
            missed = [command for command, told in zip(batch, done, strict=True) if not told]
            if missed:
                self._waiting.extendleft(reversed(missed))
                await asyncio.sleep(RETRY_AFTER_S)

    @staticmethod
    async def _do(command: Command) -> bool:
        """Return whether it need not be done again."""
        try:
            await command()
        except Unreachable:
            return False
        except ResponseError:
            logger.exception("Redis refuses to end a request")
        return True
