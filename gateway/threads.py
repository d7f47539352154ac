"""Database work for code on the event loop: in a few threads that keep their connections."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

from django.db import InterfaceError, OperationalError, close_old_connections, connections

from inference.errors import ErrorCode, TandemError

logger = logging.getLogger(__name__)

T = TypeVar("T")

_THREADS = 8


class DatabaseThreads:
    """Runs calls that speak to the database. Threads and connections are made as they are needed.

    More calls than threads wait in order, so that however many callers there are, the database has
    no more of this process' connections.
    """

    def __init__(self, count: int = _THREADS) -> None:
        self._count = count
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="database")

    async def run(self, call: Callable[[], T]) -> T:
        """Return what the call returns. Raises what it raises.

        A database that is away is UNAVAILABLE. A caller that is cancelled stops nothing that has
        begun: what is acknowledged to nobody may still have been done.
        """
        return await asyncio.get_running_loop().run_in_executor(self._pool, _call, call)

    async def stop(self) -> None:
        """Wait for what runs, and close every thread's connection."""
        barrier = Barrier(self._count)
        loop = asyncio.get_running_loop()
        # Each waits for the others, and so no thread takes two.
        closing = [loop.run_in_executor(self._pool, _close, barrier) for _ in range(self._count)]
        await asyncio.gather(*closing)
        self._pool.shutdown(wait=False)


def _call(call: Callable[[], T]) -> T:
    close_old_connections()
    try:
        return call()
    except (OperationalError, InterfaceError) as error:
        logger.warning("the database does not answer: %s", error)
        raise TandemError(
            ErrorCode.UNAVAILABLE, "the database cannot be reached right now", retry_after_s=1
        ) from error
    finally:
        close_old_connections()


def _close(barrier: Barrier) -> None:
    barrier.wait()
    connections.close_all()
