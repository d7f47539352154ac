"""Counts for the metrics what becomes of work, in Redis: told after the commit, and at most once.

Whoever is killed just then, or cannot reach Redis, has not counted. Nothing else follows from it:
ledger, trail and batches have sums of their own.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache, partial
from typing import NamedTuple

import redis
from django.db import transaction

from inference.engine.options import transport_options
from inference.transport.connection import Unreachable, connect_sync
from inference.transport.keys import Keys

logger = logging.getLogger(__name__)

_DIED = "engine_died"


class MetricCounts(NamedTuple):
    """What became of work since Redis has been counting.

    `ended` is by model and outcome, `deaths` by model. The model of a row that was never read is
    empty.
    """

    ended: Counter[tuple[str, str]]
    deaths: Counter[str]


def count_ended(ended: Iterable[tuple[str, str]]) -> None:
    """Count work that the caller's transaction ends, by model and outcome."""
    _count(Counter(f"{outcome}:{model}" for model, outcome in ended))


def count_deaths(models: Iterable[str]) -> None:
    """Count work that was running when its engine died, if the caller's transaction commits."""
    _count(Counter(f"{_DIED}:{model}" for model in models))


def read_counts(fields: Mapping[bytes, bytes]) -> MetricCounts:
    """Return what the hash in Redis says."""
    counts = MetricCounts(Counter(), Counter())
    for field, count in fields.items():
        what, _, model = field.decode().partition(":")
        if what == _DIED:
            counts.deaths[model] += int(count)
        else:
            counts.ended[model, what] += int(count)
    return counts


def _count(counts: Counter[str]) -> None:
    if counts:
        transaction.on_commit(partial(_add, counts))


def _add(counts: Counter[str]) -> None:
    options = transport_options()
    key = Keys(options.prefix).work_counts
    try:
        with _client(options.redis_url).pipeline(transaction=False) as pipeline:
            for field, count in counts.items():
                pipeline.hincrby(key, field, count)
            pipeline.execute()
    except Unreachable as error:
        logger.warning("work that ended is missing in the metrics: %s", error)


@cache
def _client(redis_url: str) -> redis.Redis:
    return connect_sync(redis_url)
