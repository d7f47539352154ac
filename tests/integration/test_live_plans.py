"""What the dashboard reads each second follows indexes, however much there is. Nothing is timed."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection

from gateway.live.usage import read_spend
from gateway.models import Team
from jobs.minutes import KEPT, sums_since, times_since
from tests.many_requests import analyze, fill
from tests.plans import plans_of

pytestmark = pytest.mark.django_db

_TEAMS = 5
# Of each minute that is kept, what five teams did.
_MINUTES = """
INSERT INTO jobs_requestminute (
    minute, team_id, model, lane, outcome, requests, input_tokens, cached_tokens, output_tokens,
    cost_micros
)
SELECT date_trunc('minute', %s::timestamptz) - number * interval '1 minute', team, 'm', 'realtime',
    'completed', 1, 1, 0, 1, 1
FROM generate_series(0, %s) AS number, generate_series(1, %s) AS team
"""
_TIMES = """
INSERT INTO jobs_latencyminute (minute, model, lane, first_token, between_tokens)
SELECT minute, model, lane, array_fill(0, ARRAY[81]), array_fill(0, ARRAY[81])
FROM jobs_requestminute WHERE team_id = 1
"""


def test_of_many_minutes_and_days_only_those_wanted_are_read() -> None:
    made = fill(2_000, Team.objects.create(name="team 1").pk)
    minutes = int(KEPT / timedelta(minutes=1)) // 10
    with connection.cursor() as cursor:
        cursor.execute(_MINUTES, [made.now, minutes, _TEAMS])
        cursor.execute(_TIMES)
    analyze()
    since = made.now.replace(second=0, microsecond=0) - timedelta(minutes=2)
    (sums,) = plans_of(lambda: sums_since(since))
    assert (sums.indexes, sums.rows_read) == (frozenset({"request_minute"}), 3 * _TEAMS)
    (times,) = plans_of(lambda: times_since(since))
    assert (times.indexes, times.rows_read) == (frozenset({"latency_minute"}), 3)
    today = made.now.date()
    (usage,) = plans_of(lambda: read_spend(today, today, today))
    assert usage.indexes == {"usage_of_all"}
