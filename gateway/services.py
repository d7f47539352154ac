"""What the consumers of one gateway process share, started on its event loop."""

from __future__ import annotations

import asyncio
import hmac

from django.conf import settings

from gateway.config import Config
from gateway.directory import Directory
from gateway.images.loader import ImageLoader
from inference.collector import tune_collector
from inference.transport.dispatcher import Dispatcher
from inference.transport.options import TransportOptions


class Services:
    """Settings, snapshots and the way to the engines."""

    def __init__(self, config: Config, transport: TransportOptions) -> None:
        self.config = config
        self.directory = Directory(transport.redis_url, transport.prefix)
        self.dispatcher = Dispatcher(transport)
        self.images = ImageLoader(config)
        self._secret = settings.SECRET_KEY.encode()
        self._starting: asyncio.Task[None] | None = None
        self._started = False

    def cache_salt(self, team_id: int) -> str:
        """What keeps one team's prefix cache apart: not to be guessed, the same on every gateway.

        Otherwise the time to the first token would tell one team what another has asked.
        """
        return hmac.digest(self._secret, b"cache-salt:%d" % team_id, "sha256").hex()

    async def ready(self) -> None:
        """Start on first use: an ASGI server such as Daphne has no start-up hook of its own."""
        if self._started:
            return
        if self._starting is None:
            self._starting = asyncio.get_running_loop().create_task(self._start())
        # Shielded: the first caller may leave, the start goes on.
        await asyncio.shield(self._starting)

    async def _start(self) -> None:
        await asyncio.gather(self.directory.start(), self.dispatcher.start())
        tune_collector()
        self._started = True

    async def stop(self) -> None:
        """Stop everything that was started."""
        if self._started:
            await self.dispatcher.stop()
            await self.directory.stop()
            await self.images.close()
