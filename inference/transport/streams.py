"""Reading Redis Streams."""

from __future__ import annotations

from typing import Any, cast

import redis.asyncio

from inference.transport.connection import BLOCK_MS, connect
from inference.transport.lines import Lines

Entry = tuple[bytes, dict[bytes, bytes]]


class Reader:
    """Waits for entries, each time a moment. Its connections are its own.

    Both ways of reading raise what `Unreachable` names, and `ResponseError`.
    """

    def __init__(self, redis_url: str) -> None:
        self._client = connect(redis_url)
        self._lines = Lines(self._client)

    async def read(self, stream: str, after: bytes | str, count: int) -> list[Entry]:
        """Wait for entries after an id; empty if none came."""
        return await self._entries(
            *("XREAD", "COUNT", count, "BLOCK", BLOCK_MS, "STREAMS", stream, after)
        )

    async def read_group(
        self, stream: str, group: str, consumer: str, *, wait: bool
    ) -> Entry | None:
        """Return one new entry of a consumer group, or None; `wait` for it or not."""
        block = ("BLOCK", BLOCK_MS) if wait else ()
        entries = await self._entries(
            *("XREADGROUP", "GROUP", group, consumer, "COUNT", 1, *block, "STREAMS", stream, ">")
        )
        return entries[0] if entries else None

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _entries(self, *command: Any) -> list[Entry]:
        (answer,) = await self._lines.exchange([command])
        if isinstance(answer, Exception):
            raise answer
        if not answer:
            return []
        # By stream, of which there is one: pairs in version 2 of Redis's protocol, else a map.
        ((_, entries),) = answer.items() if isinstance(answer, dict) else answer
        return [(entry_id, _fields(told)) for entry_id, told in entries]


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


def _fields(told: list[bytes] | None) -> dict[bytes, bytes]:
    """Return an entry's fields; of one that was deleted meanwhile there are none."""
    flat = told or []
    return dict(zip(flat[::2], flat[1::2], strict=True))
