"""An engine's heartbeat."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from typing import cast

import pytest
import redis
from django.conf import settings

from inference.engine.heart import Heart
from inference.transport.connection import connect_sync
from inference.transport.frames import EngineReport, EngineState, decode_report
from inference.transport.keys import Keys
from inference.transport.options import TransportOptions


@pytest.fixture
def options() -> TransportOptions:
    return TransportOptions(
        redis_url=settings.REDIS_URL, prefix=f"unit-{secrets.token_hex(4)}", heartbeat_s=60
    )


@pytest.fixture
def client(options: TransportOptions) -> Iterator[redis.Redis]:
    with connect_sync(options.redis_url) as connected:
        yield connected


class Engine:
    """What the heart tells of."""

    state = EngineState.LOADING

    def report(self) -> EngineReport:
        return EngineReport(
            engine_id="e1",
            model="m",
            host="h",
            pid=1,
            state=self.state,
            capacity=1,
            in_flight=0,
            kv_use=None,
            started_at_s=0,
        )


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "the condition never held"
        time.sleep(0.01)


def test_it_beats_at_once_and_at_a_change_and_leaves_nothing(
    options: TransportOptions, client: redis.Redis
) -> None:
    keys = Keys(options.prefix)

    def state() -> EngineState | None:
        value = cast("bytes | None", client.get(keys.engine("e1")))
        return decode_report(value).state if value else None

    engine = Engine()
    heart = Heart(options, engine.report)
    heart.start()
    wait_for(lambda: state() is EngineState.LOADING)
    assert client.smembers(keys.engines) == {b"e1"}
    assert 0 < client.pttl(keys.engine("e1")) <= options.heartbeat_ttl_ms
    engine.state = EngineState.READY
    heart.beat_now()
    wait_for(lambda: state() is EngineState.READY)
    heart.stop()
    assert not client.exists(keys.engine("e1"), keys.engines)


def test_it_outlives_a_redis_that_is_away() -> None:

    nowhere = TransportOptions(redis_url="redis://127.0.0.1:1/0", heartbeat_s=0.01)
    beats: list[EngineReport] = []

    def report() -> EngineReport:
        beats.append(Engine().report())
        return beats[-1]

    heart = Heart(nowhere, report)
    heart.start()
    wait_for(lambda: len(beats) > 2)
    assert heart.is_alive()
    heart.stop()
    assert not heart.is_alive()
