"""Tells the quota of accounts that it does not know, or that it may know wrongly."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from django.db import Error, connection

from jobs.ledger import AccountState
from jobs.quota.client import Quota

logger = logging.getLogger(__name__)

ReadState = Callable[[int], AccountState]
_NEVER_S = float("-inf")


class Accounts:
    """Loads teams' accounts from the database. `read_state` runs in a thread."""

    def __init__(self, quota: Quota, read_state: ReadState) -> None:
        self._quota = quota
        self._read_state = read_state
        self._loading: dict[int, asyncio.Task[bool]] = {}
        self._began_at_s: dict[int, float] = {}

    async def load(self, team_id: int, max_age_s: float = 0.0) -> bool:
        """Load an account, unless a load began less than `max_age_s` ago; say whether it was.

        Callers at the same time share one load, whichever of them leave. False if the database
        cannot be read. Raises what the Redis client raises.
        """
        task = self._loading.get(team_id)
        if task is None:
            now_s = time.monotonic()
            if now_s - self._began_at_s.get(team_id, _NEVER_S) < max_age_s:
                return False
            self._began_at_s[team_id] = now_s
            task = asyncio.create_task(self._load(team_id))
            self._loading[team_id] = task
            task.add_done_callback(lambda _: self._loading.pop(team_id))
        return await asyncio.shield(task)

    async def _load(self, team_id: int) -> bool:
        try:
            state = await asyncio.to_thread(self._read, team_id)
        except Error as error:
            logger.warning("cannot read the account of team %d: %s", team_id, error)
            return False
        await self._quota.load(team_id, state)
        return True

    def _read(self, team_id: int) -> AccountState:
        try:
            return self._read_state(team_id)
        finally:
            connection.close()
