"""What operators see of the engines, and what they tell them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from inference.transport.connection import connect_sync
from inference.transport.frames import EngineReport, EngineState, Order, encode
from inference.transport.keys import Keys
from inference.transport.options import TransportOptions
from inference.transport.orders import list_engines, send_order


@pytest.fixture
def looker(options: TransportOptions) -> Iterator[redis.Redis]:
    with connect_sync(options.redis_url) as client:
        yield client


def live(client: redis.Redis, keys: Keys, engine_id: str, **fields: object) -> EngineReport:
    said = {
        "model": "m",
        "host": "h",
        "pid": 1,
        "state": EngineState.READY,
        "capacity": 4,
        "in_flight": 0,
        "kv_use": None,
        "started_at_s": 0,
    }
    report = EngineReport(engine_id=engine_id, **(said | fields))  # type: ignore[arg-type]
    client.sadd(keys.engines, engine_id)
    client.set(keys.engine(engine_id), encode(report))
    return report


def test_without_an_engine_there_is_none(looker: redis.Redis, keys: Keys) -> None:
    assert list_engines(looker, keys) == []


def test_engines_are_listed_by_model_and_the_oldest_first(looker: redis.Redis, keys: Keys) -> None:
    young = live(looker, keys, "e1", started_at_s=2)
    other = live(looker, keys, "e2", model="a")
    old = live(looker, keys, "e3", started_at_s=1)
    assert list_engines(looker, keys) == [other, old, young]


def test_those_that_are_gone_or_cannot_be_read_are_left_out(
    looker: redis.Redis, keys: Keys
) -> None:
    looker.sadd(keys.engines, "gone", "strange")
    looker.set(keys.engine("strange"), b"\xc1")
    assert list_engines(looker, keys) == []


def test_an_order_waits_for_its_engine_and_for_no_other(looker: redis.Redis, keys: Keys) -> None:
    live(looker, keys, "e1")
    live(looker, keys, "e2")
    assert send_order(looker, keys, "e1", Order.DRAIN)
    entries: Any = looker.xrange(keys.control("e1"))
    ((_, fields),) = entries
    assert fields == {b"o": b"drain"}
    assert 0 < looker.ttl(keys.control("e1")) <= 60
    assert not looker.exists(keys.control("e2"))


def test_nothing_is_told_to_an_engine_that_is_gone(looker: redis.Redis, keys: Keys) -> None:
    looker.sadd(keys.engines, "gone")
    assert not send_order(looker, keys, "gone", Order.RELOAD)
    assert not looker.exists(keys.control("gone"))
