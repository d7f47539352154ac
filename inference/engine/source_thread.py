"""The one thread from which an engine speaks to its source of work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from inference.engine.work import WorkSource

logger = logging.getLogger(__name__)

T = TypeVar("T")


class SourceThread:
    """Calls a `WorkSource`, one call after another, and opens its lease whenever it may be lost."""

    def __init__(self, source: WorkSource) -> None:
        self._source = source
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="work")
        self._is_open = False

    async def do(self, call: Callable[[WorkSource], T]) -> asyncio.Future[T]:
        """Make a call, and return what came of it: a future that is done.

        A caller that is cancelled stops nothing that has begun.
        """
        future = asyncio.get_running_loop().run_in_executor(self._pool, self._call, call)
        await asyncio.wait([future])
        return future

    def _call(self, call: Callable[[WorkSource], T]) -> T:
        if not self._is_open:
            self._source.open()
        # Unless the call says otherwise, by ending.
        self._is_open = False
        result = call(self._source)
        self._is_open = True
        return result

    async def close(self) -> None:
        """End the lease: the last call."""
        done = await self.do(_close)
        if error := done.exception():
            logger.warning("The engine's lease is not ended, and runs out: %s", error)

    def stop(self) -> None:
        """End the thread, once the call that it makes is over."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _close(source: WorkSource) -> None:
    source.close()
