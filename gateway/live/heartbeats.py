"""Reads from Redis what engines say of themselves and what waits for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, cast

import msgspec
import redis.asyncio

from inference.request import Lane
from inference.transport.frames import EngineReport, decode_report
from inference.transport.keys import QUEUED_LANES, Keys

# The oldest entry's id only: what it asks may be megabytes, and stays where it is.
_STREAMS = """
local found = {}
for place, key in ipairs(KEYS) do
    local waiting = redis.call('XLEN', key)
    local oldest = ''
    if waiting > 0 then oldest = redis.call('XRANGE', key, '-', '+', 'COUNT', 1)[1][1] end
    found[place] = {waiting, oldest}
end
return found
"""


class Queue(NamedTuple):
    """How many requests wait for engines of a model in one lane, and since when the oldest."""

    model: str
    lane: Lane
    waiting: int
    since_s: float | None


class Sight(NamedTuple):
    """What one look has found.

    `silent` are engines that have not said goodbye and say nothing any more. The last two are of
    records: since when the oldest waits for the clerk, and how many entries it could not keep.
    """

    reports: dict[str, EngineReport]
    silent: set[str]
    queues: list[Queue]
    records_since_s: float | None
    records_dead: int


class Heartbeats:
    """Looks by a client that is the caller's to close."""

    def __init__(self, client: redis.asyncio.Redis, keys: Keys) -> None:
        self._client = client
        self._keys = keys

    async def look(self, models: Iterable[str]) -> Sight:
        """Look once. Raises what the Redis client does."""
        queues = [(model, lane) for model in models for lane in QUEUED_LANES]
        pipeline = self._client.pipeline(transaction=False)
        streams = [self._keys.records, *(self._keys.queue(*queue) for queue in queues)]
        pipeline.smembers(self._keys.engines)
        pipeline.xlen(self._keys.dead_records)
        pipeline.eval(_STREAMS, len(streams), *streams)
        members, dead, ((_, oldest_record), *found) = await pipeline.execute()
        ids = sorted(raw.decode() for raw in members)
        reports = await self._reports(ids)
        return Sight(
            reports=reports,
            silent={engine_id for engine_id in ids if engine_id not in reports},
            queues=[
                Queue(*queue, count, _time_s(oldest))
                for queue, (count, oldest) in zip(queues, found, strict=True)
            ],
            records_since_s=_time_s(oldest_record),
            records_dead=dead,
        )

    async def _reports(self, ids: list[str]) -> dict[str, EngineReport]:
        if not ids:
            return {}
        keys = [self._keys.engine(engine_id) for engine_id in ids]
        values = cast("list[bytes | None]", await self._client.mget(keys))
        read = zip(ids, values, strict=True)
        return {
            engine_id: report
            for engine_id, value in read
            if value is not None and (report := _decode(value)) is not None
        }


def _decode(value: bytes) -> EngineReport | None:
    try:
        return decode_report(value)
    except msgspec.DecodeError:
        # An engine of another version.
        return None


def _time_s(entry_id: bytes) -> float | None:
    """Return when an entry of a stream was added, as its id says."""
    return int(entry_id.partition(b"-")[0]) / 1000 if entry_id else None
