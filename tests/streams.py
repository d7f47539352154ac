"""Looking into Redis Streams, and waiting for what appears there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

import redis.asyncio

from inference.transport.streams import Entry

T = TypeVar("T")

_PATIENCE_S = 20


async def entries_of(client: redis.asyncio.Redis, stream: str) -> list[Entry]:
    """Return everything in a stream."""
    return cast("list[Entry]", await client.xrange(stream))


async def until(look: Callable[[], Awaitable[T]]) -> T:
    """Look until there is something true to see, and return that."""
    async with asyncio.timeout(_PATIENCE_S):
        while not (seen := await look()):  # noqa: ASYNC110 - another process's doing has no event
            await asyncio.sleep(0.01)
    return seen
