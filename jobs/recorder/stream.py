"""The reading end of the stream of records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

import redis
from redis.exceptions import ResponseError

from inference.transport.connection import is_missing_group
from inference.transport.keys import RECORDERS, Keys

BATCH = 500
# There is one reader, whichever process it is in: what one has read is the next one's to finish.
_READER = "recorder"


class Entry(NamedTuple):
    """One record as it was written; `data` None: it was deleted, but not acknowledged."""

    id: bytes
    data: bytes | None


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

    def read(self) -> list[Entry]:
        """Return at most `BATCH` entries, those that are there by now. Acknowledge them all.

        What was read before and not acknowledged comes first: by this process or by another one,
        which may have read it at any time until it noticed that it was not the leader any more.
        """
        return self._read("0") or self._read(">")

    def _read(self, after: str) -> list[Entry]:
        try:
            replies = self._client.xreadgroup(
                RECORDERS, _READER, {self._stream: after}, count=BATCH
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
