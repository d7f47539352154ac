"""What the consumers of one gateway process share, started on its event loop."""

from __future__ import annotations

import asyncio
import hmac
from contextlib import suppress

from django.conf import settings
from redis.exceptions import ResponseError

from gateway.accounting.desk import Desk
from gateway.accounting.limiter import Limiter
from gateway.config import Config
from gateway.directory import Directory
from gateway.images.loader import ImageLoader
from inference.collector import tune_collector
from inference.transport.connection import Unreachable
from inference.transport.dispatcher import Dispatcher
from inference.transport.keys import Keys
from inference.transport.options import TransportOptions
from inference.transport.record_writer import RecordWriter
from jobs.ledger import read_state

# How long a gateway that stops tries to write its last records; engines write theirs anyway.
_LAST_RECORDS_S = 2.0


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
        self._secret = settings.SECRET_KEY.encode()
        self._starting: asyncio.Task[None] | None = None
        self._started = False

    def cache_salt(self, team_id: int) -> str:
        """What keeps one team's prefix cache apart: not to be guessed, the same on every gateway.

        Otherwise the time to the first token would tell one team what another has asked.
        """
        return hmac.digest(self._secret, b"cache-salt:%d" % team_id, "sha256").hex()

    async def record_backlog(self) -> tuple[int | None, int | None]:
        """How many entries wait for the recorder, and how many it put aside; None: unknown."""
        try:
            streams = (self._keys.records, self._keys.dead_records)
            send = self.dispatcher.courier.send
            waiting, dead = await asyncio.gather(*(send("XLEN", stream) for stream in streams))
        except (*Unreachable, ResponseError):
            return None, None
        return waiting, dead

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
        await asyncio.gather(self.directory.start(), self.dispatcher.start())
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
            await self.dispatcher.close()

    async def _stop_writing(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_RECORDS_S):
                await self._writer.flushed()
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.wait([self._writing])
