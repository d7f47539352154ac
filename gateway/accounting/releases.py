"""Tells the quota of what has ended, off the path of any answer, as soon as Redis is there."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from functools import partial

from inference.transport.connection import RETRY_AFTER_S, Unreachable
from jobs.quota.claims import Ended

logger = logging.getLogger(__name__)

Tell = Callable[[int, Sequence[Ended]], asyncio.Future[None]]

# Under load several end meanwhile, and are told for the price of one.
_GATHER_S = 0.005
# So many in one step; Redis does nothing else meanwhile.
_BATCH = 32
# With Redis away for long, leases have to end what was not told.
_MAX_WAITING = 10_000
_STOP_S = 1.0


class Releases:
    """Ends that must reach Redis, though nobody waits for them. Telling one twice is harmless.

    `tell` has sent the ends of a team when it returns.
    """

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._waiting: deque[tuple[int, Ended]] = deque()
        self._on_their_way: set[asyncio.Future[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_away = False

    def put(self, team_id: int, ended: Ended) -> None:
        """Have this told soon."""
        if len(self._waiting) >= _MAX_WAITING:
            logger.warning("Redis is away: the end of a request is not told, its lease ends it")
            return
        self._waiting.append((team_id, ended))
        self._send_after(_GATHER_S)

    def flush(self) -> None:
        """Send what waits ahead of whatever is sent next, unless Redis is away."""
        if self._waiting and not self._is_away:
            self._send()

    async def stop(self) -> None:
        """Tell what waits, but do not wait for a Redis that is away."""
        self._send()
        if self._on_their_way:
            await asyncio.wait(self._on_their_way, timeout=_STOP_S)
        if self._timer is not None:
            self._timer.cancel()

    def _send_after(self, delay_s: float) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._look)

    def _look(self) -> None:
        self._timer = None
        self._send()

    def _send(self) -> None:
        by_team: defaultdict[int, list[Ended]] = defaultdict(list)
        while self._waiting:
            team_id, ended = self._waiting.popleft()
            by_team[team_id].append(ended)
        for team_id, all_ended in by_team.items():
            for start in range(0, len(all_ended), _BATCH):
                batch = all_ended[start : start + _BATCH]
                told = self._tell(team_id, batch)
                self._on_their_way.add(told)
                told.add_done_callback(partial(self._answered, team_id, batch))

    def _answered(self, team_id: int, batch: list[Ended], told: asyncio.Future[None]) -> None:
        self._on_their_way.discard(told)
        error = told.exception()
        self._is_away = isinstance(error, Unreachable)
        if self._is_away:
            self._waiting.extendleft((team_id, ended) for ended in reversed(batch))
            self._send_after(RETRY_AFTER_S)
        elif error is not None:
            logger.error("Redis refuses to end requests", exc_info=error)
