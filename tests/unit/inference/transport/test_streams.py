"""What the streams' entries say of themselves."""

from __future__ import annotations

import time

import redis.asyncio

from inference.transport.keys import Keys
from inference.transport.streams import added_at_s


async def test_an_entry_says_when_it_was_added(client: redis.asyncio.Redis, keys: Keys) -> None:
    before_s = time.time()
    entry_id = await client.xadd(keys.records, {"r": b""})
    assert isinstance(entry_id, bytes)
    # Redis counts whole milliseconds.
    assert before_s - 0.001 <= added_at_s(entry_id) <= time.time()
    assert added_at_s(b"1700000000123-7") == 1700000000.123
