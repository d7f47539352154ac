"""An engine's way to the work in the database: see `inference.engine.work.WorkSource`."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence

from django.db import DataError, IntegrityError, close_old_connections
from django.utils import timezone

from inference.engine.options import transport_options
from inference.engine.work import WorkItem, WorkResult
from inference.transport.connection import connect_sync
from jobs.recorder.settling import Settlement
from jobs.work import leases
from jobs.work.claim import LeaseOverError, claim
from jobs.work.credit import Credit
from jobs.work.finish import fail, finish
from jobs.work.queue import Ask, Queue
from jobs.work.records import Engine

logger = logging.getLogger(__name__)

# Dead engines are looked for by those that live, each so often.
_REAP_EVERY_S = 3.0
# A team whose money is held for what runs is asked after again then.
_SHORT_FOR_S = 1.0
# Rows that nobody can pay for are many at once, and must not keep others from running.
_ROUNDS = 20


class DatabaseSource:
    """Work as the database has it. For one thread, which may raise what the database raises."""

    def __init__(self, engine_id: str, model: str, host: str) -> None:
        self._engine = Engine(engine_id, model, host)
        self._queue = Queue(self._engine)
        options = transport_options()
        self._client = connect_sync(options.redis_url)
        self._credit = Credit(self._client, options.prefix)
        self._reap_at_s = 0.0
        self._short_until_s: dict[int, float] = {}

    def open(self) -> None:
        """Begin the engine's lease."""
        close_old_connections()
        leases.open_lease(*self._engine)

    def claim(self, limit: int, first: Collection[str] = ()) -> list[WorkItem]:
        """Take at most so many: what is named, and then as `jobs.work.queue` orders them."""
        close_old_connections()
        self._reap()
        for _ in range(_ROUNDS):
            now_s = time.monotonic()
            self._short_until_s = {
                team: until for team, until in self._short_until_s.items() if until > now_s
            }
            try:
                ask = Ask(limit, first, self._short_until_s)
                claimed = claim(self._queue, ask, self._credit, timezone.now())
            except LeaseOverError:
                leases.open_lease(*self._engine)
                continue
            self._credit.settle(claimed.settlements)
            self._short_until_s |= dict.fromkeys(claimed.short, now_s + _SHORT_FOR_S)
            if claimed.items or not (claimed.short or claimed.refused):
                return claimed.items
        return []

    def finish(self, results: Sequence[WorkResult]) -> None:
        """Keep what these came to, and what they cost."""
        close_old_connections()
        self._credit.settle(self._finish(results))

    def _finish(self, results: Sequence[WorkResult]) -> list[Settlement]:
        """Keep results in as few transactions as it takes to tell those apart that cannot be."""
        if not results:
            return []
        now = timezone.now()
        try:
            return finish(self._engine, results, now)
        except (DataError, IntegrityError, ValueError, OverflowError) as error:
            if len(results) == 1:
                logger.error(
                    "What became of request %s cannot be kept: %s",
                    results[0].item.request.id,
                    type(error).__name__,
                )
                return fail(self._engine, results[0], "its answer could not be kept", now)
        middle = len(results) // 2
        return self._finish(results[:middle]) + self._finish(results[middle:])

    def renew(self, running: Collection[str]) -> set[str]:
        """Renew the lease; return what is to be broken off."""
        close_old_connections()
        self._reap()
        kept = leases.renew(self._engine.id)
        if kept is None:
            logger.warning("Engine %s was taken for dead; its work has gone back", self._engine.id)
            leases.open_lease(*self._engine)
            return set(running)
        self._credit.settle([])
        return set(running) - kept

    def give_back(self, request_ids: Collection[str], *, preempted: bool = False) -> None:
        """Put back what was taken and will not be ended here."""
        close_old_connections()
        settlements = leases.give_back(
            self._engine.id, request_ids, timezone.now(), preempted=preempted
        )
        self._credit.settle(settlements)

    def close(self) -> None:
        """End the lease: all that is still this engine's goes back at once."""
        close_old_connections()
        self._credit.settle(leases.close(self._engine.id, timezone.now()))

    def _reap(self) -> None:
        if time.monotonic() >= self._reap_at_s:
            self._reap_at_s = time.monotonic() + _REAP_EVERY_S
            self._credit.settle(leases.reap(timezone.now()))
