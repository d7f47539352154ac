"""An hour of figures from before the tests began, so that charts have something to show."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from inference.request import Lane
from jobs.latency import BUCKETS, bucket_of
from tests.acceptance.stack import Stack

# This minute is the tests' own.
_MINUTES = range(1, 60)
_NOBODY = 0
_REQUESTS = """
INSERT INTO jobs_requestminute (minute, team_id, model, lane, outcome, requests, input_tokens,
    cached_tokens, output_tokens, cost_micros)
VALUES (%s, %s, %s, %s, 'completed', %s, %s, 0, %s, 0)
"""
_TIMES = """
INSERT INTO jobs_latencyminute (minute, model, lane, first_token, between_tokens)
VALUES (%s, %s, 'realtime', %s, %s)
"""


def add_history(stack: Stack, model: str) -> None:
    """Add up requests of nobody's to this model, as the clerk would have."""
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    chance = random.Random("history")
    with psycopg.connect(stack.layout.database_url) as connection:
        cursor = connection.cursor()
        for ago in _MINUTES:
            minute = now - timedelta(minutes=ago)
            for lane, requests in _requests(ago, chance):
                tokens = requests * chance.randint(180, 260), requests * chance.randint(90, 130)
                cursor.execute(_REQUESTS, [minute, _NOBODY, model, lane, requests, *tokens])
                if lane == Lane.REALTIME:
                    cursor.execute(_TIMES, [minute, model, *_times(requests, ago, chance)])


def _requests(ago: int, chance: random.Random) -> Iterator[tuple[Lane, int]]:
    """Yield a busy hour: callers come in waves, and a batch fills what they leave."""
    wave = math.sin(ago / 9)
    yield Lane.REALTIME, round(150 + 60 * wave) + chance.randint(0, 30)
    yield Lane.BACKGROUND, chance.randint(4, 14)
    if 12 <= ago <= 47:
        yield Lane.BATCH, round(260 - 120 * wave) + chance.randint(0, 40)


def _times(requests: int, ago: int, chance: random.Random) -> Iterator[Any]:
    """Yield the histograms of both times, in seconds: longer when more is asked."""
    for usual_s, spread in ((0.16, 0.35), (0.021, 0.12)):
        counts = [0] * BUCKETS
        for _ in range(requests):
            longer = spread * abs(chance.gauss(0, 1)) + 0.1 * math.sin(ago / 9)
            counts[bucket_of(usual_s * math.exp(longer))] += 1
        yield counts
