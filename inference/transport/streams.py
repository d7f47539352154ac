"""Reading Redis Streams, with the types that redis-py leaves open."""

from __future__ import annotations

from typing import Any, cast

import redis.asyncio

from inference.transport.connection import BLOCK_MS

Entry = tuple[bytes, dict[bytes, bytes]]


async def read(
    client: redis.asyncio.Redis, stream: str, after: bytes | str, count: int
) -> list[Entry]:
    """Wait a moment for entries after an id; empty if none came."""
    return _entries(await client.xread({stream: after}, count=count, block=BLOCK_MS))


async def read_group(
    client: redis.asyncio.Redis, stream: str, group: str, consumer: str, *, wait: bool
) -> Entry | None:
    """Return one new entry of a consumer group, or None; `wait` a moment for it or not."""
    block_ms = BLOCK_MS if wait else None
    replies = await client.xreadgroup(group, consumer, {stream: ">"}, count=1, block=block_ms)
    entries = _entries(replies)
    return entries[0] if entries else None


async def claim_idle(
    client: redis.asyncio.Redis, stream: str, group: str, consumer: str, idle_ms: int
) -> Entry | None:
    """Claim one entry that its consumer has not acknowledged for `idle_ms`."""
    reply = await client.xautoclaim(stream, group, consumer, min_idle_time=idle_ms, count=1)
    claimed = cast("list[Entry]", reply[1])
    return claimed[0] if claimed else None


def added_at_s(entry_id: bytes) -> float:
    """Return when Redis took an entry: Unix time in seconds, by the clock of its machine."""
    return int(entry_id.partition(b"-")[0]) / 1000


def _entries(replies: Any) -> list[Entry]:
    return cast("list[Entry]", replies[0][1]) if replies else []
