"""One run of looking: all sources together, each at its own pace, and what alerts follow."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Self

from django.utils import timezone
from redis.exceptions import ResponseError

from gateway.live import alerts
from gateway.live.engines import Engines
from gateway.live.heartbeats import Heartbeats
from gateway.live.models import Models
from gateway.live.parts import Parts, encode
from gateway.live.reading import Reader
from gateway.live.source import Source
from gateway.live.traffic import Traffic
from gateway.live.usage import Usage
from gateway.live.work import Work
from inference.errors import TandemError
from inference.transport.connection import Unreachable, connect
from inference.transport.keys import Keys
from inference.transport.options import TransportOptions

# Sources look at the same time: what they find within that is told together.
_GATHER_S = 0.05
# A source that does not answer must not keep back the others when somebody begins to watch.
_FIRST_LOOK_S = 1.0


class Board:
    """What there is to be told at the moment."""

    def __init__(self, heartbeats: Heartbeats, reader: Reader) -> None:
        self._models = Models(reader)
        self._engines = Engines(heartbeats, self._models)
        self._traffic = Traffic(reader)
        self._work = Work(reader)
        self._usage = Usage(reader)
        self._sources: tuple[Source, ...] = (
            self._models,
            self._engines,
            self._traffic,
            self._work,
            self._usage,
        )
        self._away: dict[str, str] = {}
        self._first_looks = [asyncio.Event() for _ in self._sources]
        self._news = asyncio.Event()

    @classmethod
    @asynccontextmanager
    async def open(cls, options: TransportOptions) -> AsyncIterator[Self]:
        """Connect, look until the end, and disconnect."""
        reader = Reader()
        client = connect(options.redis_url)
        board = cls(Heartbeats(client, Keys(options.prefix)), reader)
        try:
            async with asyncio.TaskGroup() as group:
                looking = [
                    group.create_task(board._follow(*each))
                    for each in zip(board._sources, board._first_looks, strict=True)
                ]
                await board._first_look()
                yield board
                for task in looking:
                    task.cancel()
        finally:
            await client.aclose()
            await reader.close()

    async def _first_look(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_LOOK_S):
                for looked in self._first_looks:
                    await looked.wait()

    async def _follow(self, source: Source, looked: asyncio.Event) -> None:
        if source is not self._models:
            # What the engines are for is known then.
            await self._first_looks[0].wait()
        due_s = time.monotonic()
        while True:
            try:
                await source.look(timezone.now())
                self._away.pop(type(source).__name__, None)
            except (TandemError, *Unreachable, ResponseError):
                self._away[type(source).__name__] = source.name
            looked.set()
            self._news.set()
            due_s = max(due_s + source.every_s, time.monotonic())
            await asyncio.sleep(due_s - time.monotonic())

    async def news(self) -> None:
        """Wait until somebody has looked again."""
        await self._news.wait()
        await asyncio.sleep(_GATHER_S)
        self._news.clear()

    def parts(self) -> Parts:
        """Return all there is to be told."""
        now_s = timezone.now().timestamp()
        parts: Parts = {}
        for source in self._sources:
            parts |= source.parts
        return parts | {
            "alerts": encode(alerts.of_service(self._facts(now_s))),
            "deadlines": encode(alerts.of_batches(self._work.batches, now_s)),
            "balances": encode(alerts.of_balances(self._usage.short)),
        }

    def _facts(self, now_s: float) -> alerts.Facts:
        engines = self._engines
        return alerts.Facts(
            now_s=now_s,
            away=tuple(self._away.values()),
            states=tuple(engines.states),
            reports=tuple(engines.reports.values()),
            lost=tuple(engines.lost.values()),
            waiting=self._work.waiting,
            latencies=tuple(self._traffic.latencies),
            failures=tuple(self._traffic.failures),
            records_since_s=engines.records_since_s,
            records_dead=engines.records_dead,
        )
