"""The reading end of the stream of records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

import redis
from redis.exceptions import ResponseError

from inference.transport.connection import is_missing_group
from inference.transport.keys import RECORDERS, Keys

BATCH = 500
# Bodies come with their records. What a batch weighs, recorder and database need many times over,
# and PostgreSQL takes no parameter of a gigabyte; so it is read a few entries at a time.
BATCH_BYTES = 32 * 1024 * 1024
_AT_ONCE = 10
# There is one reader, whichever process it is in: what one has read is the next one's to finish.
_READER = "recorder"


class Entry(NamedTuple):
    """One record as it was written; `data` None: it was deleted, but not acknowledged."""

    id: bytes
    data: bytes | None


class Batch(NamedTuple):
    """Entries to be recorded together; `more`: others may be waiting."""

    entries: list[Entry]
    more: bool


class Dead(NamedTuple):
    """An entry that cannot be kept."""

    entry: Entry
    reason: str


class RecordStream:
    """Hands out records until they are acknowledged. Raises what the Redis client raises."""

    def __init__(self, client: redis.Redis, keys: Keys) -> None:
        self._client = client
        self._stream = keys.records
        self._dead = keys.dead_records

    def open(self) -> None:
        """Make the consumer group if it is not there; everything in the stream is then new."""
        try:
            self._client.xgroup_create(self._stream, RECORDERS, id="0", mkstream=True)
        except ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise

    def read(self) -> Batch:
        """Return entries that are there by now, up to the bounds of a batch. Acknowledge them all.

        What was read before and not acknowledged comes first: by this process or by another one,
        which may have read it at any time until it noticed that it was not the leader any more.
        """
        pending = self._read("0")
        return Batch(pending.entries, more=True) if pending.entries else self._read(">")

    def _read(self, after: bytes | str) -> Batch:
        entries: list[Entry] = []
        size = 0
        while len(entries) < BATCH and size < BATCH_BYTES:
            found = self._read_some(after)
            entries += found
            size += sum(len(entry.data or b"") for entry in found)
            if len(found) < _AT_ONCE:
                return Batch(entries, more=False)
            if after != ">":
                after = found[-1].id
        return Batch(entries, more=True)

    def _read_some(self, after: bytes | str) -> list[Entry]:
        try:
            replies = self._client.xreadgroup(
                RECORDERS, _READER, {self._stream: after}, count=_AT_ONCE
            )
        except ResponseError as error:
            if not is_missing_group(error):
                raise
            # Redis has forgotten everything; what matters is written again.
            self.open()
            return []
        if not replies:
            return []
        entries = cast("list[tuple[bytes, dict[bytes, bytes] | None]]", cast("Any", replies)[0][1])
        return [Entry(entry_id, (fields or {}).get(b"r")) for entry_id, fields in entries]

    def acknowledge(self, entries: Sequence[Entry], dead: Iterable[Dead]) -> None:
        """Remove entries, and put those aside that cannot be kept, both or neither."""
        pipeline = self._client.pipeline(transaction=True)
        for (entry_id, data), reason in dead:
            pipeline.xadd(self._dead, {"r": data or b"", "id": entry_id, "reason": reason})
        ids = [entry.id for entry in entries]
        pipeline.xack(self._stream, RECORDERS, *ids)
        pipeline.xdel(self._stream, *ids)
        pipeline.execute()
