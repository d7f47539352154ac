"""Tells all who watch what there is, and looks only while somebody does."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection
from typing import Protocol

from gateway.live.board import Board
from gateway.live.parts import Parts, changes, message, visible
from inference.transport.options import TransportOptions

logger = logging.getLogger(__name__)

# Watchers are told at most once in so long.
_EVERY_S = 1.0


class Watcher(Protocol):
    """Somebody who looks at a page."""

    permissions: frozenset[str]

    async def tell(self, text: str) -> None:
        """Send a message."""

    async def give_up(self) -> None:
        """End the connection: nothing will be told any more."""


class Hub:
    """The watchers of one process. All of it runs on one event loop."""

    def __init__(self, options: TransportOptions) -> None:
        self._options = options
        self._watchers: set[Watcher] = set()
        self._parts: Parts = {}
        self._looking: asyncio.Task[None] | None = None

    async def join(self, watcher: Watcher) -> None:
        """Tell somebody all there is, as soon as it is known, and then what changes."""
        self._watchers.add(watcher)
        if self._looking is None:
            self._looking = asyncio.create_task(self._look(), name="live")
        if self._parts:
            await self._tell([watcher], self._parts, whole=True)

    def leave(self, watcher: Watcher) -> None:
        """Tell somebody nothing more; after the last one, look no more."""
        self._watchers.discard(watcher)
        if not self._watchers and self._looking is not None:
            self._looking.cancel()
            self._looking, self._parts = None, {}

    async def _look(self) -> None:
        try:
            async with Board.open(self._options) as board:
                await self._follow(board)
        except ExceptionGroup:
            logger.exception("The dashboard's figures have come to a halt; they begin anew")
        finally:
            # Whatever ended it, nobody is left to wait for what will not come.
            if self._looking is asyncio.current_task():
                await self._give_up()

    async def _follow(self, board: Board) -> None:
        while True:
            began_s = time.monotonic()
            parts, before = board.parts(), self._parts
            self._parts = parts
            if not before:
                await self._tell(list(self._watchers), parts, whole=True)
            elif changed := changes(before, parts):
                await self._tell(list(self._watchers), changed, whole=False)
            await board.news()
            await asyncio.sleep(began_s + _EVERY_S - time.monotonic())

    async def _tell(self, watchers: Collection[Watcher], parts: Parts, *, whole: bool) -> None:
        texts: dict[frozenset[str], str] = {}
        for watcher in watchers:
            text = texts.get(watcher.permissions)
            if text is None:
                shown = visible(parts, watcher.permissions)
                text = message(shown, time.time(), whole=whole) if shown or whole else ""
                texts[watcher.permissions] = text
            if text:
                await watcher.tell(text)

    async def _give_up(self) -> None:
        """Let the watchers come again."""
        watchers, self._watchers = self._watchers, set()
        self._looking, self._parts = None, {}
        for watcher in watchers:
            await watcher.give_up()
