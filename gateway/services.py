"""What the consumers of one gateway process share, started on its event loop."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from redis.exceptions import ResponseError

from gateway.accounting.desk import Desk
from gateway.accounting.limiter import Limiter
from gateway.config import Config
from gateway.directory import Directory
from gateway.images.loader import ImageLoader
from gateway.responses.feed import Feed
from gateway.responses.store import Responses
from gateway.threads import DatabaseThreads
from inference.collector import tune_collector
from inference.errors import TandemError
from inference.transport.connection import Unreachable
from inference.transport.dispatcher import Dispatcher
from inference.transport.keys import Keys
from inference.transport.log import LogReader
from inference.transport.options import TransportOptions
from inference.transport.record_writer import RecordWriter
from jobs.ledger import read_state
from jobs.work.backlog import Backlog, read_backlog
from jobs.work.metric_counts import MetricCounts, read_counts

# How long a gateway that stops tries to write its last records; engines write theirs anyway.
_LAST_RECORDS_S = 2.0
# A busy database keeps no scraper waiting.
_METRICS_S = 2.0
# New batches whose rows are being read: each takes a processor for many seconds.
_BATCHES_AT_ONCE = 2


class Services:
    """Settings, snapshots and the way to the engines."""

    def __init__(self, config: Config, transport: TransportOptions) -> None:
        self.config = config
        self.directory = Directory(transport.redis_url, transport.prefix)
        self.dispatcher = Dispatcher(transport)
        self._keys = Keys(transport.prefix)
        self._writer = RecordWriter(self.dispatcher.courier, self._keys)
        self._writing: asyncio.Task[None] | None = None
        self._limiter = Limiter(
            self.dispatcher.courier,
            transport.prefix,
            fail_open=config.LIMITS_FAIL_OPEN,
            read_state=read_state,
            wait_s=config.ENQUEUE_WAIT_S,
        )
        self.desk = Desk(config, self._limiter, self._writer)
        self.images = ImageLoader(config)
        self.database = DatabaseThreads()
        self.batch_threads = DatabaseThreads(_BATCHES_AT_ONCE)
        self._logs = LogReader(transport, self.dispatcher.courier)
        self.responses = Responses(config, self.database, self._logs.follow)
        self.feed = Feed(self.database)
        self._starting: asyncio.Task[None] | None = None
        self._started = False

    async def record_backlog(self) -> tuple[int | None, int | None]:
        """How many entries wait for the recorder, and how many it put aside; None: unknown."""
        try:
            streams = (self._keys.records, self._keys.dead_records)
            send = self.dispatcher.courier.send
            waiting, dead = await asyncio.gather(*(send("XLEN", stream) for stream in streams))
        except (*Unreachable, ResponseError):
            return None, None
        return waiting, dead

    async def work_state(self) -> tuple[Backlog | None, MetricCounts | None]:
        """What work there is, and what became of work; None: unknown."""
        return await asyncio.gather(self._work_backlog(), self._work_counts())

    async def _work_backlog(self) -> Backlog | None:
        try:
            async with asyncio.timeout(_METRICS_S):
                return await self.database.run(read_backlog)
        except (TandemError, TimeoutError):
            return None

    async def _work_counts(self) -> MetricCounts | None:
        try:
            fields = await self.dispatcher.courier.send("HGETALL", self._keys.work_counts)
        except (*Unreachable, ResponseError):
            return None
        return read_counts(fields)

    async def ready(self) -> None:
        """Start on first use: an ASGI server such as Daphne has no start-up hook of its own."""
        if self._started:
            return
        if self._starting is None:
            self._starting = asyncio.get_running_loop().create_task(self._start())
        # Shielded: the first caller may leave, the start goes on.
        await asyncio.shield(self._starting)

    async def _start(self) -> None:
        self._writing = asyncio.create_task(self._writer.run(), name="records")
        await asyncio.gather(self.directory.start(), self.dispatcher.start(), self._logs.start())
        tune_collector()
        self._started = True

    async def stop(self) -> None:
        """Stop everything that was started."""
        if self._started:
            await self.dispatcher.stop()
            await self.directory.stop()
            await self.images.close()
            await self._limiter.stop()
            await self._stop_writing()
            await self._logs.stop()
            await self.feed.stop()
            await self.responses.stop()
            await self.dispatcher.close()
            await self.database.stop()
            await self.batch_threads.stop()

    async def _stop_writing(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_RECORDS_S):
                await self._writer.flushed()
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.wait([self._writing])
