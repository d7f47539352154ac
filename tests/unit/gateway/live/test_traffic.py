"""What is told of the last hour."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gateway.live.reading import Reader
from gateway.live.traffic import Traffic
from jobs.latency import BUCKETS, bucket_of
from jobs.minutes import MinuteSums, MinuteTimes

THIS = datetime(2026, 8, 7, 12, 0, tzinfo=UTC)
NOW = THIS + timedelta(seconds=15)
HOUR = THIS - timedelta(hours=1)


def sums(minutes_ago: int = 0, **fields: Any) -> MinuteSums:
    known: dict[str, Any] = {
        "minute": THIS - timedelta(minutes=minutes_ago),
        "lane": "realtime",
        "model": "m",
        "outcome": "completed",
        "requests": 60,
        "input_tokens": 600,
        "output_tokens": 120,
    }
    return MinuteSums(**(known | fields))


def times(minutes_ago: int = 0, *, first_s: float = 0.5, lane: str = "realtime") -> MinuteTimes:
    first, between = [0] * BUCKETS, [0] * BUCKETS
    first[bucket_of(first_s)] = 10
    between[bucket_of(0.02)] = 10
    return MinuteTimes(
        minute=THIS - timedelta(minutes=minutes_ago),
        lane=lane,
        model="m",
        first_token=first,
        between_tokens=between,
    )


def seen(*found: MinuteSums, timed: tuple[MinuteTimes, ...] = ()) -> Traffic:
    source = Traffic(Reader())
    source.see(HOUR, found, timed, NOW)
    return source


def part(source: Traffic, name: str) -> Any:
    return json.loads(source.parts[name])


def minute(minutes_ago: int) -> str:
    return f"minute/{int((THIS - timedelta(minutes=minutes_ago)).timestamp())}"


def test_each_minute_is_told_by_lane() -> None:
    source = seen(
        sums(3),
        sums(3, model="n", requests=1),
        sums(3, lane="batch", outcome="timeout", requests=2, output_tokens=0),
        timed=(times(3), times(3, lane="flex", first_s=9)),
    )
    told = part(source, minute(3))
    assert told["requests"] == {"realtime": 61, "batch": 2}
    assert told["output_tokens"] == {"realtime": 240, "batch": 0}
    assert told["failed"] == 2
    (p50, p95, p99) = told["first_token"]["m"]
    assert p50 == pytest.approx(0.5, rel=0.2)
    assert p50 <= p95 <= p99


def test_a_rate_is_that_of_the_last_sixty_seconds() -> None:
    """Of the minute before three quarters are in them."""
    told = part(seen(sums(0), sums(1), sums(2)), "rates")
    assert told["realtime"]["requests_per_s"] == 1.75
    assert told["realtime"]["input_tokens_per_s"] == 17.5
    assert told["batch"]["requests_per_s"] == 0


def test_without_traffic_nothing_changes() -> None:
    source = seen()
    before = source.parts
    source.see(NOW - timedelta(minutes=2), [], [], NOW + timedelta(seconds=40))
    assert source.parts == before


def test_a_look_replaces_the_minutes_that_it_has_read() -> None:
    source = seen(sums(10), sums(1))
    source.see(THIS - timedelta(minutes=2), [sums(1, requests=61)], [], NOW)
    assert part(source, minute(10))["requests"] == {"realtime": 60}
    assert part(source, minute(1))["requests"] == {"realtime": 61}


def test_minutes_grow_old() -> None:
    source = seen(sums(60), sums(59))
    later = NOW + timedelta(minutes=1)
    source.see(later - timedelta(minutes=2), [], [], later)
    assert minute(60) not in source.parts
    assert minute(59) in source.parts


def test_times_are_those_of_the_last_minutes() -> None:
    source = seen(timed=(times(5), times(6, first_s=60), times(0)))
    (told,) = source.latencies
    assert (told.model, told.lane, told.requests) == ("m", "realtime", 20)
    assert told.first_token[2] == pytest.approx(0.5, rel=0.2)
    assert told.between_tokens[0] == pytest.approx(0.02, rel=0.2)


def test_errors_are_told_by_kind_the_most_frequent_first() -> None:
    source = seen(
        sums(),
        sums(9, outcome="cancelled"),
        sums(30, outcome="timeout", requests=2),
        sums(2, outcome="timeout", requests=3),
        sums(4, outcome="overloaded", requests=7),
    )
    errors = part(source, "errors")
    assert [(each["kind"], each["requests"]) for each in errors] == [
        ("overloaded", 7),
        ("timeout", 5),
    ]
    assert errors[1]["last_minute_s"] == int((THIS - timedelta(minutes=2)).timestamp())


def test_failures_are_those_of_the_last_minutes() -> None:
    source = seen(
        sums(1, requests=90),
        sums(1, outcome="timeout", requests=4),
        sums(2, outcome="overloaded", requests=6),
        sums(20, outcome="timeout", requests=50),
        sums(1, model="well"),
    )
    (told,) = source.failures
    assert (told.model, told.failed, told.ended, told.kind) == ("m", 10, 100, "overloaded")
