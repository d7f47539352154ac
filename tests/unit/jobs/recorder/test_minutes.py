"""Sums by the minute always equal a recount of the trail's settled rows."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from inference.events import Usage
from inference.request import Lane
from inference.transport.records import Ending, Record
from jobs import minutes
from jobs.latency import BUCKETS
from jobs.models import LatencyMinute, Price, RequestMinute, RequestRecord
from jobs.recorder.batch import write
from jobs.recorder.sweep import settle_overdue
from jobs.seals import SEAL_AFTER, seal_batch
from tests.records import NOTHING, admitted, closed, completed, new_id, unserved

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 8, 7, 12, 0, 0, 0, UTC)
AT_S = NOW.timestamp() - 5
BOUNDS_S = [0.001 * 2 ** (place / 4) for place in range(BUCKETS - 1)]
SUMS = ("requests", "input_tokens", "cached_tokens", "output_tokens", "cost_micros")

Counts = dict[tuple[Any, ...], tuple[int, ...]]


@pytest.fixture(autouse=True)
def _price() -> None:
    """Let every token cost one micro-unit."""
    Price.objects.create(
        model="m",
        effective_from=NOW - timedelta(days=1),
        input_micros_per_mtok=1_000_000,
        cached_input_micros_per_mtok=1_000_000,
        cache_write_micros_per_mtok=1_000_000,
        output_micros_per_mtok=1_000_000,
    )


def recounted() -> tuple[Counts, Counts]:
    """Count what the rows say, the plain way."""
    requests: dict[tuple[Any, ...], list[int]] = {}
    times: dict[tuple[Any, ...], list[int]] = {}
    for row in RequestRecord.objects.filter(settled_at__isnull=False):
        ended_at = row.closed_at or row.engine_ended_at or row.settled_at
        assert ended_at is not None
        minute = ended_at.replace(second=0, microsecond=0)
        outcome = row.status if row.status in ("completed", "cancelled") else row.detail
        key = (minute, row.team_id, row.model, row.lane, outcome)
        sums = requests.setdefault(key, [0] * 5)
        own = (1, row.input_tokens, row.cached_tokens, row.output_tokens, row.cost_micros or 0)
        requests[key] = [one + other for one, other in zip(sums, own, strict=True)]
        if row.first_token_at is None or row.lane not in ("realtime", "flex"):
            continue
        counts = times.setdefault((minute, row.model, row.lane), [0] * (2 * BUCKETS))
        waited_s = (row.first_token_at - row.created_at).total_seconds()
        counts[bisect_left(BOUNDS_S, waited_s)] += 1
        if row.closed_at is not None and row.output_tokens > 1:
            passed_s = (row.closed_at - row.first_token_at).total_seconds()
            counts[BUCKETS + bisect_left(BOUNDS_S, passed_s / (row.output_tokens - 1))] += 1
    return _some(requests), _some(times)


def kept() -> tuple[Counts, Counts]:
    """Return what is kept, without what has come to nothing."""
    requests = {
        (each.minute, each.team_id, each.model, each.lane, each.outcome): [
            getattr(each, name) for name in SUMS
        ]
        for each in RequestMinute.objects.all()
    }
    times = {
        (each.minute, each.model, each.lane): [*each.first_token, *each.between_tokens]
        for each in LatencyMinute.objects.all()
    }
    return _some(requests), _some(times)


def _some(counts: dict[tuple[Any, ...], list[int]]) -> Counts:
    return {key: tuple(values) for key, values in counts.items() if any(values)}


def outcomes() -> Counter[str]:
    """Return how many requests there are by outcome."""
    rows = RequestMinute.objects.values_list("outcome", "requests")
    found: Counter[str] = Counter()
    for outcome, requests in rows:
        found[outcome] += requests
    return +found


def test_a_settled_request_is_counted_in_the_minute_in_which_it_ended() -> None:
    request_id = new_id()
    write([admitted(request_id, AT_S)], NOW)
    assert not RequestMinute.objects.exists()
    write([completed(request_id, AT_S), closed(request_id, AT_S)], NOW)
    found = RequestMinute.objects.get()
    assert (found.minute, found.team_id, found.model, found.lane, found.outcome) == (
        NOW - timedelta(minutes=1),
        1,
        "m",
        "realtime",
        "completed",
    )
    assert [getattr(found, name) for name in SUMS] == [1, 100, 20, 30, 130]
    times = LatencyMinute.objects.get()
    assert (times.minute, times.model, times.lane) == (found.minute, "m", "realtime")
    assert times.first_token[bisect_left(BOUNDS_S, 0.375)] == sum(times.first_token) == 1
    assert times.between_tokens[bisect_left(BOUNDS_S, 0.375 / 29)] == 1


def test_a_replay_counts_nothing_twice() -> None:
    request_id = new_id()
    records: list[Record] = [
        admitted(request_id, AT_S),
        completed(request_id, AT_S),
        closed(request_id, AT_S),
    ]
    write(records, NOW)
    before = kept()
    write(records, NOW)
    write(records[:1], NOW)
    assert kept() == before == recounted()


def test_a_request_that_is_told_of_anew_moves() -> None:
    """Its gateway knew of no engine, and then one says that it had the request."""
    request_id = new_id()
    write([admitted(request_id, AT_S), unserved(request_id, AT_S, detail="no_engine")], NOW)
    assert outcomes() == {"no_engine": 1}
    write([completed(request_id, AT_S, attempt=1, ending=Ending.ENGINE_LOST)], NOW)
    assert outcomes() == {}
    write([completed(request_id, AT_S, attempt=1, ending=Ending.FAILED, detail="internal")], NOW)
    assert kept() == recounted()
    assert outcomes().total() == 1


def test_a_late_word_about_a_sealed_row_changes_nothing() -> None:
    request_id = new_id()
    write([admitted(request_id, AT_S), unserved(request_id, AT_S, ending=Ending.CANCELLED)], NOW)
    assert seal_batch(NOW + 2 * SEAL_AFTER) == 1
    before = kept()
    write([completed(request_id, AT_S)], NOW)
    assert kept() == before == recounted()


def test_what_the_sweep_gives_up_is_counted_by_what_became_of_it() -> None:
    write([admitted(new_id(), AT_S, deadline_s=AT_S)], NOW)
    settle_overdue(NOW, NOW)
    assert outcomes() == {"gateway_lost": 1}
    assert kept() == recounted()


def test_work_has_no_times() -> None:
    request_id = new_id()
    records: list[Record] = [
        admitted(request_id, AT_S, lane=Lane.BATCH),
        completed(request_id, AT_S, lane=Lane.BATCH),
        closed(request_id, AT_S),
    ]
    write(records, NOW)
    assert RequestMinute.objects.get().lane == "batch"
    assert not LatencyMinute.objects.exists()


def test_minutes_that_are_pruned_are_left_alone() -> None:
    request_id, at_s = new_id(), AT_S - minutes.KEPT.total_seconds() - 60
    write([admitted(request_id, at_s), completed(request_id, at_s), closed(request_id, at_s)], NOW)
    assert RequestRecord.objects.get().settled_at == NOW
    assert not RequestMinute.objects.exists()
    assert not LatencyMinute.objects.exists()


Story = Callable[[str, float, dict[str, Any]], list[Record]]

_NONE = Usage(prompt_tokens=3, cached_tokens=0, output_tokens=1)
STORIES: list[Story] = [
    lambda name, at_s, who: [
        admitted(name, at_s, **who),
        completed(name, at_s, **who),
        closed(name, at_s),
    ],
    lambda name, at_s, who: [
        admitted(name, at_s, **who),
        unserved(name, at_s, detail="overloaded"),
    ],
    lambda name, at_s, who: [
        admitted(name, at_s, **who),
        completed(name, at_s, ending=Ending.ENGINE_LOST, usage=NOTHING, **who),
        completed(name, at_s + 70, attempt=1, usage=_NONE, **who),
        closed(name, at_s + 70, attempts=2, usage=_NONE),
    ],
    lambda name, at_s, who: [
        admitted(name, at_s, **who),
        completed(name, at_s, ending=Ending.FAILED, detail="internal", **who),
        closed(name, at_s, ending=Ending.CANCELLED),
    ],
    lambda name, at_s, who: [admitted(name, at_s, deadline_s=at_s + 1, **who)],
    lambda name, at_s, who: [completed(name, at_s, **who)],
    lambda name, at_s, who: [
        admitted(name, at_s, **who),
        unserved(name, at_s, ending=Ending.CANCELLED),
        completed(name, at_s, attempt=1, ending=Ending.SUPERSEDED, **who),
        completed(name, at_s, attempt=1, **who),
    ],
]


@pytest.mark.parametrize("seed", range(12))
def test_they_equal_a_recount_whatever_comes_in_whatever_order(seed: int) -> None:
    """Shuffled, repeated, in batches of any size, with sweeps and seals in between."""
    chance = random.Random(seed)
    told = []
    for _ in range(30):
        who = {
            "team_id": chance.randint(1, 3),
            "model": chance.choice(["m", "n"]),
            "lane": chance.choice(list(Lane)),
        }
        records = chance.choice(STORIES)(new_id(), AT_S - chance.uniform(0, 200), who)
        told += records + chance.sample(records, chance.randint(0, len(records)))
    chance.shuffle(told)
    now = NOW
    while told:
        count = chance.randint(1, 12)
        write(told[:count], now)
        told = told[count:]
        now += timedelta(seconds=chance.uniform(0, 90))
        if chance.random() < 0.3:
            settle_overdue(now - timedelta(seconds=60), now)
        if chance.random() < 0.3:
            seal_batch(now)
        assert kept() == recounted()
    settle_overdue(now, now)
    assert kept() == recounted()
    assert outcomes().total() == RequestRecord.objects.count()
