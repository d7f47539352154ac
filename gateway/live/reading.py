"""The database as the dashboard reads it: in threads of its own, and never for long."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from django.db import connection, transaction

from gateway.threads import DatabaseThreads

T = TypeVar("T")

_THREADS = 2
# A query that takes longer is broken off: it must not be in the way of those that serve.
_LONGEST_MS = 2000


class Reader:
    """Runs calls that only read, each as of one moment."""

    def __init__(self) -> None:
        self._threads = DatabaseThreads(_THREADS)

    async def read(self, call: Callable[[], T]) -> T:
        """Return what the call returns. `TandemError` UNAVAILABLE, also after two seconds."""
        return await self._threads.run(partial(_read, call))

    async def close(self) -> None:
        """Close the connections."""
        await self._threads.stop()


def _read(call: Callable[[], T]) -> T:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION READ ONLY")
        cursor.execute("SELECT set_config('statement_timeout', %s, true)", [str(_LONGEST_MS)])
        return call()
