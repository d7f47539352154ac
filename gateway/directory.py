"""What the hot path knows without a database: live keys, the catalogue and prices, in memory.

Each is a snapshot that is loaded again at a nudge (see `inference.transport.nudge`), and every
few seconds in case a nudge was lost. A database that is away leaves the last snapshot in use.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

from django.db import Error, connection
from redis.exceptions import RedisError

from gateway.keys import Principal, digest, is_key, load_principals
from inference.catalogue import Catalogue, load_catalogue
from inference.errors import ErrorCode, TandemError
from inference.transport.connection import RETRY_AFTER_S, connect
from inference.transport.keys import Keys
from inference.transport.nudge import Topic
from jobs.pricing import PriceList, load_prices

logger = logging.getLogger(__name__)

T = TypeVar("T")

# A caller with an unknown key makes the keys be loaded again at most so often.
RESOLVE_INTERVAL_S = 1.0
PING_TIMEOUT_S = 2.0

# A database that is away, and a row whose JSON is not what the admin's form would have let in.
_UNREADABLE = (Error, AttributeError, TypeError, ValueError)


class Snapshot(Generic[T]):
    """The last good copy of something that lives in the database. `load` runs in a thread."""

    def __init__(self, name: str, load: Callable[[], T]) -> None:
        self._name = name
        self._load = load
        self._lock = asyncio.Lock()
        self._began_at = float("-inf")
        self._value: T | None = None
        self.loaded_at_s: float | None = None

    @property
    def value(self) -> T:
        """The copy. Raises `TandemError` (UNAVAILABLE) as long as none could be loaded."""
        if self._value is None:
            raise TandemError(
                ErrorCode.UNAVAILABLE,
                f"the gateway has not been able to read its {self._name} yet",
                retry_after_s=1,
            )
        return self._value

    async def refresh(self, max_age_s: float = 0.0) -> None:
        """Load again, unless a load began less than `max_age_s` ago: then wait for that one.

        Callers at the same time share one load. A failure is logged and keeps the old copy.
        """
        # Shielded: a caller that goes away must not start a second load beside the first.
        await asyncio.shield(self._refresh(time.monotonic() - max_age_s))

    async def refresh_since(self, moment: float, interval_s: float) -> None:
        """Wait for a load that began after a moment, by the monotonic clock.

        Loads that are begun for this are `interval_s` apart from the ones before.
        """
        if self._began_at < moment:
            await asyncio.sleep(self._began_at + interval_s - time.monotonic())
        await asyncio.shield(self._refresh(moment))

    async def _refresh(self, not_before: float) -> None:
        async with self._lock:
            if self._began_at >= not_before:
                return
            self._began_at = time.monotonic()
            try:
                self._value = await asyncio.to_thread(_on_own_connection, self._load)
                self.loaded_at_s = time.time()
            except _UNREADABLE as error:
                logger.warning(
                    "cannot read the %s, keeping the last: %s",
                    self._name,
                    error,
                    exc_info=not isinstance(error, Error),
                )


class KeyDirectory:
    """Finds who a key belongs to."""

    def __init__(self, snapshot: Snapshot[dict[bytes, Principal]]) -> None:
        self._snapshot = snapshot

    def find(self, plaintext: str) -> Principal | None:
        """Return who this live key belongs to, from memory alone, or None.

        The look-up is by digest, so its time tells nothing about the keys that exist. Raises
        `TandemError` (UNAVAILABLE) as long as no keys could be loaded.
        """
        return self._snapshot.value.get(digest(plaintext))

    async def resolve(self, plaintext: str) -> Principal | None:
        """Like `find`, but look for an unknown key in the database first.

        A key works from the moment that it is made, and however many unknown keys arrive, the
        database is read once per `RESOLVE_INTERVAL_S`: so one that may have been made since the
        last time waits for the next. What cannot be a key is not looked for twice.
        """
        asked_at = time.monotonic()
        principal = self.find(plaintext)
        if principal is None:
            await self._snapshot.refresh(max_age_s=RESOLVE_INTERVAL_S)
            principal = self.find(plaintext)
        if principal is None and is_key(plaintext):
            await self._snapshot.refresh_since(asked_at, RESOLVE_INTERVAL_S)
            principal = self.find(plaintext)
        return principal


class Directory:
    """The snapshots of one gateway process and the tasks that keep them fresh."""

    def __init__(self, redis_url: str, prefix: str, refresh_s: float = 10.0) -> None:
        self._redis_url = redis_url
        self._channel = Keys(prefix).nudges
        self._refresh_s = refresh_s
        self._keys = Snapshot("keys", load_principals)
        self._catalogue = Snapshot("catalogue", load_catalogue)
        self._prices = Snapshot("prices", load_prices)
        self._snapshots: dict[bytes, Snapshot[Any]] = {
            Topic.KEYS.encode(): self._keys,
            Topic.CATALOGUE.encode(): self._catalogue,
            Topic.PRICES.encode(): self._prices,
        }
        self._tasks: list[asyncio.Task[None]] = []
        self._listening = True  # until it fails, which is then logged once
        self._ping: asyncio.Task[bool] | None = None
        self.keys = KeyDirectory(self._keys)

    @property
    def catalogue(self) -> Catalogue:
        """The enabled models. Raises `TandemError` (UNAVAILABLE) if they were never loaded."""
        return self._catalogue.value

    @property
    def prices(self) -> PriceList:
        """What models cost. Raises `TandemError` (UNAVAILABLE) if that was never loaded."""
        return self._prices.value

    @property
    def loaded_at_s(self) -> float | None:
        """When the oldest of the snapshots was loaded, in seconds of Unix time; None: not yet."""
        times_s = [snapshot.loaded_at_s for snapshot in self._snapshots.values()]
        known_s = [time_s for time_s in times_s if time_s is not None]
        return min(known_s) if len(known_s) == len(times_s) else None

    async def start(self) -> None:
        """Load everything once, and from then on keep it fresh.

        A database that is away does not stop the start: `loaded_at_s` stays None until it is back.
        """
        await self._refresh_all()
        self._tasks = [
            asyncio.create_task(self._poll(), name="directory-poll"),
            asyncio.create_task(self._listen(), name="directory-nudges"),
        ]

    async def stop(self) -> None:
        """End the tasks. Harmless when called twice."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task

    async def ping_database(self) -> bool:
        """Whether the database answers within `PING_TIMEOUT_S`. Pings at the same time share one.

        One that hangs is not joined by a second, however often this is asked.
        """
        if self._ping is None or self._ping.done():
            self._ping = asyncio.create_task(asyncio.to_thread(_on_own_connection, _answers))
        done, _ = await asyncio.wait({self._ping}, timeout=PING_TIMEOUT_S)
        return bool(done) and self._ping.result()

    async def _refresh_all(self) -> None:
        await asyncio.gather(*(snapshot.refresh() for snapshot in self._snapshots.values()))

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self._refresh_s)
            await self._refresh_all()

    async def _listen(self) -> None:
        while True:
            try:
                await self._follow_nudges()
            except (RedisError, OSError) as error:
                if self._listening:
                    logger.warning("no nudges until Redis is back: %s", error)
                self._listening = False
                await asyncio.sleep(RETRY_AFTER_S)

    async def _follow_nudges(self) -> None:
        async with connect(self._redis_url) as client, client.pubsub() as pubsub:
            await pubsub.subscribe(self._channel)
            while True:
                message = await pubsub.get_message(timeout=self._refresh_s)
                if message is None:
                    continue
                if message["type"] == "subscribe":
                    # Also after a connection was lost, and nudges with it.
                    self._listening = True
                    await self._refresh_all()
                elif snapshot := self._snapshots.get(message["data"]):
                    await snapshot.refresh()


def _on_own_connection(call: Callable[[], T]) -> T:
    """Call with a database connection that is closed after: none to go stale or to lie idle."""
    try:
        return call()
    finally:
        connection.close()


def _answers() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except Error:
        return False
    return True
