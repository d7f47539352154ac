"""Removes what dead engines leave behind in Redis."""

from __future__ import annotations

from typing import cast

import redis
from redis.exceptions import ResponseError

from inference.transport.keys import GROUP, QUEUED_LANES, Keys


def sweep(client: redis.Redis, keys: Keys, models: list[str]) -> int:
    """Forget engines whose heartbeat is gone, and their places in the queues. Returns how many.

    A consumer that still holds requests is kept: a live engine claims them from it first.
    """
    ids = [raw.decode() for raw in cast("set[bytes]", client.smembers(keys.engines))]
    dead = [engine_id for engine_id in ids if not client.exists(keys.engine(engine_id))]
    if dead:
        client.srem(keys.engines, *dead)
    for model in models:
        lanes = (keys.queue(model, lane) for lane in QUEUED_LANES)
        for queue in (*lanes, keys.counts(model)):
            try:
                _forget_consumers(client, queue, keys)
            except ResponseError:
                # No queue, or none that an engine has read from.
                continue
    return len(dead)


def _forget_consumers(client: redis.Redis, queue: str, keys: Keys) -> None:
    for consumer in client.xinfo_consumers(queue, GROUP):
        name = consumer["name"].decode()
        if not consumer["pending"] and not client.exists(keys.engine(name)):
            client.xgroup_delconsumer(queue, GROUP, name)
