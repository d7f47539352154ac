"""The reading end of the stream of records.

There is one reader, which takes what is oldest and removes it when it is in the database: the
stream needs no consumer group, whose bookkeeping would cost as much as all else about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, cast

import redis

from inference.transport.keys import Keys

BATCH = 1000
# Bodies come with their records. What a batch weighs, recorder and database need many times over,
# and PostgreSQL takes no parameter of a gigabyte; so it is read a few entries at a time.
BATCH_BYTES = 32 * 1024 * 1024
_AT_ONCE = 20


class Entry(NamedTuple):
    """Some records as they were written together."""

    id: bytes
    data: bytes


class Batch(NamedTuple):
    """Entries to be recorded together; `more`: others may be waiting."""

    entries: list[Entry]
    more: bool


class Dead(NamedTuple):
    """A record that cannot be kept, or a whole entry that cannot be read."""

    entry_id: bytes
    data: bytes
    reason: str


class RecordStream:
    """Hands out records until they are removed. Raises what the Redis client raises."""

    def __init__(self, client: redis.Redis, keys: Keys) -> None:
        self._client = client
        self._stream = keys.records
        self._dead = keys.dead_records

    def read(self) -> Batch:
        """Return the oldest entries, up to the bounds of a batch. Remove them all."""
        entries: list[Entry] = []
        size = 0
        after = b"-"
        while len(entries) < BATCH and size < BATCH_BYTES:
            found = self._read_some(after)
            entries += found
            size += sum(len(entry.data) for entry in found)
            if len(found) < _AT_ONCE:
                return Batch(entries, more=False)
            after = b"(" + found[-1].id
        return Batch(entries, more=True)

    def _read_some(self, after: bytes) -> list[Entry]:
        found = self._client.xrange(self._stream, min=after.decode(), count=_AT_ONCE)
        entries = cast("list[tuple[bytes, dict[bytes, bytes]]]", found)
        return [Entry(entry_id, fields.get(b"r", b"")) for entry_id, fields in entries]

    def remove(self, entries: Sequence[Entry], dead: Iterable[Dead]) -> None:
        """Remove entries, and put those records aside that cannot be kept, both or neither."""
        pipeline = self._client.pipeline(transaction=True)
        for entry_id, data, reason in dead:
            pipeline.xadd(self._dead, {"r": data, "id": entry_id, "reason": reason})
        pipeline.xdel(self._stream, *(entry.id for entry in entries))
        pipeline.execute()
