"""Admission: how many requests of which lane an engine runs at the same time."""

from __future__ import annotations

import asyncio
from collections import Counter

from inference.request import Lane


class Admission:
    """The permits of one engine. A request holds one from before it is taken until its end."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._held: Counter[Lane] = Counter()
        self._released = asyncio.Event()

    @property
    def in_use(self) -> int:
        """Permits that are held, in all lanes."""
        return self._held.total()

    async def acquire(self, lane: Lane) -> None:
        """Wait for a permit and take it."""
        while self.in_use >= self.capacity:
            self._released.clear()
            await self._released.wait()
        self._held[lane] += 1

    def release(self, lane: Lane) -> None:
        """Give a permit back."""
        self._held[lane] -= 1
        self._released.set()
