"""`/admin/live`: the WebSocket of the dashboard.

It sends everything at once, and then what changes, at most once a second and nothing when nothing
does. A page that has heard nothing for a while sends any text and is told the time, so that it can
tell quiet from a connection that is dead.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from functools import partial

from channels.generic.websocket import AsyncWebsocketConsumer

from gateway.live.access import permissions_of, session_of
from gateway.live.hub import Hub
from gateway.live.parts import message
from gateway.threads import DatabaseThreads
from inference.errors import TandemError

# Closing codes that pages tell apart, as those of `gateway.progress`.
DENIED = 4401
TRY_AGAIN = 1013
# How long somebody who was logged out, or lost a permission, is told more.
_CHECK_EVERY_S = 15.0


class Live(AsyncWebsocketConsumer):  # type: ignore[misc]
    """One page that watches."""

    def __init__(self, hub: Hub, database: DatabaseThreads) -> None:
        super().__init__()
        self._hub = hub
        self._database = database
        self._checking: asyncio.Task[None] | None = None
        self.permissions: frozenset[str] = frozenset()

    async def connect(self) -> None:
        """Let in operators. The socket is opened first, so that a page can read from the closing
        code why it was not."""
        await self.accept()
        try:
            permissions = await self._permissions()
        except TandemError:
            await self.close(TRY_AGAIN)
            return
        if permissions is None:
            await self.close(DENIED)
            return
        self.permissions = permissions
        self._checking = asyncio.create_task(self._check())
        await self._hub.join(self)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Say that the connection is alive."""
        await self.tell(message({}, time.time(), whole=False))

    async def disconnect(self, code: int) -> None:
        """Tell it nothing more."""
        self._hub.leave(self)
        if self._checking is not None:
            self._checking.cancel()
            with suppress(asyncio.CancelledError):
                await self._checking

    async def tell(self, text: str) -> None:
        """Send a message."""
        await self.send(text_data=text)

    async def give_up(self) -> None:
        """Close; the page comes again."""
        await self.close(TRY_AGAIN)

    async def _check(self) -> None:
        while True:
            await asyncio.sleep(_CHECK_EVERY_S)
            with suppress(TandemError):
                permissions = await self._permissions()
                if permissions is None:
                    self._hub.leave(self)
                    await self.close(DENIED)
                    return
                if permissions != self.permissions:
                    self.permissions = permissions
                    await self._hub.join(self)

    async def _permissions(self) -> frozenset[str] | None:
        return await self._database.run(partial(permissions_of, session_of(self.scope)))
