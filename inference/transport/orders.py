"""The engines as operators see them, and what they tell them. Without an event loop."""

from __future__ import annotations

from typing import cast

import msgspec
import redis

from inference.transport.frames import EngineReport, Order, decode_report
from inference.transport.keys import Keys

# An engine reads at once. Should it have died, nobody will.
_ORDER_TTL_S = 60


def list_engines(client: redis.Redis, keys: Keys) -> list[EngineReport]:
    """Return the last report of each engine that is alive, by model, the oldest engine first.

    Those of another version, which cannot be read, are left out. Raises what the client raises.
    """
    ids = [raw.decode() for raw in cast("set[bytes]", client.smembers(keys.engines))]
    if not ids:
        return []
    found = cast("list[bytes | None]", client.mget([keys.engine(engine_id) for engine_id in ids]))
    reports = []
    for value in found:
        if value is not None:
            try:
                reports.append(decode_report(value))
            except msgspec.DecodeError:
                continue
    return sorted(reports, key=lambda report: (report.model, report.started_at_s))


def send_order(client: redis.Redis, keys: Keys, engine_id: str, order: Order) -> bool:
    """Tell an engine what to do; False if there is no such engine, or it has gone.

    It is seen in the engine's reports. An engine that loads does it once it serves, if that is
    within a minute. Raises what the client raises.
    """
    if not client.exists(keys.engine(engine_id)):
        return False
    control = keys.control(engine_id)
    pipeline = client.pipeline(transaction=False)
    pipeline.xadd(control, {"o": order.value})
    pipeline.expire(control, _ORDER_TTL_S)
    pipeline.execute()
    return True
