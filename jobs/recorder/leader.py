"""Elects the one recorder that is active: it holds a lock of the database session it writes in.

PostgreSQL gives the lock back with the session, however that ends, so that a recorder whose
connection is lost can write nothing more, and another one may begin at once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import InterfaceError, connection, transaction

_LOCK = int.from_bytes(b"tandrecd")
_ASK_EVERY_S = 1.0


class Leadership:
    """The lock, for the thread that uses it. Every method raises what Django's database raises."""

    def __init__(self) -> None:
        self._session: object = None

    def acquire(self, stop: threading.Event) -> bool:
        """Wait until nobody else has the lock; False if told to stop first."""
        while not self._try():
            if stop.wait(_ASK_EVERY_S):
                return False
        self._session = connection.connection
        return True

    def _try(self) -> bool:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_try_advisory_lock(%s)", [_LOCK])
            return bool(cursor.fetchone()[0])

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction in the very session that has the lock, and in no other."""
        with transaction.atomic():
            # Django would replace a lost connection without a word.
            if connection.connection is not self._session:
                raise InterfaceError("the session that had the recorder's lock is lost")
            yield

    def release(self) -> None:
        """Let another one begin."""
        self._session = None
        connection.close()
