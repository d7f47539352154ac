"""Fills the database with many requests, as a year of use leaves them: trail, ledger, usage.

Half of them are one team's, and a tenth a team's that left half a year ago. Everything is drawn
from a hash of the request's number, so that two runs make the same rows. What is rare is there too:
a model, a key and a type of one in a thousand.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection
from django.utils import timezone

from gateway.models import Team
from inference.models import Model

TEAMS = 20
DAYS = 365
MODELS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta")
COMMON_MODEL, *_, RARE_MODEL = MODELS

# For each request a number below 1,000 for each of its properties, and its place in the year.
_DRAWN = """
CREATE TEMPORARY TABLE drawn AS
SELECT n,
    abs(hashint8(n) %% 1000) AS team,
    abs(hashint8(n + 1000000007) %% 1000) AS key,
    abs(hashint8(n + 2000000011) %% 1000) AS model,
    abs(hashint8(n + 3000000019) %% 1000) AS status,
    abs(hashint8(n + 4000000007) %% 1000) AS type,
    abs(hashint8(n + 5000000029) %% 1000) AS tokens,
    %(now)s - (%(count)s - n) * (%(days)s * interval '1 day' / %(count)s) AS at
FROM generate_series(1, %(count)s) AS n
"""

_TRAIL = """
INSERT INTO jobs_requestrecord (
    id, created_at, deadline_at, team_id, team_name, key_id, key_name, client, address, trace_id,
    session_id, type, stream_id, custom_id, batch_id, dialect, lane, model, requested_model,
    streamed, max_tokens, ignored_fields, body_bytes,
    body_digest, engine_id, engine_host, attempts, taken_at, first_token_at, engine_ended_at,
    closed_at, status, ending, detail, error, answer_digest, input_tokens, cached_tokens,
    cache_written_tokens, output_tokens, thinking_tokens, cost_micros, settled_at
)
SELECT
    (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0')
        || '7' || substr(md5(n::text), 1, 3) || '8' || substr(md5(n::text), 4, 15))::uuid,
    at, at + interval '600 s', (%(teams)s::bigint[])[place], 'team ' || place,
    md5('key ' || key_number || ' of team ' || place)::uuid, 'key ' || key_number,
    'anthropic-python/2.14.0', '10.0.0.' || team %% 250, md5(n::text), 'session-' || n / 7,
    CASE WHEN type < 600 THEN 'standalone' WHEN type < 999 THEN 'stream' ELSE 'batch' END,
    CASE WHEN type BETWEEN 600 AND 998 THEN md5('stream ' || place)::uuid END,
    CASE WHEN type < 999 THEN '' ELSE 'row-' || n END,
    CASE WHEN type > 998 THEN md5('batch ' || n / 100000)::uuid END,
    'messages', CASE WHEN type < 999 THEN 'realtime' ELSE 'batch' END,
    CASE WHEN model < 600 THEN 'alpha' WHEN model < 850 THEN 'beta' WHEN model < 950 THEN 'gamma'
        WHEN model < 990 THEN 'delta' WHEN model < 999 THEN 'epsilon' ELSE 'zeta' END,
    '', type %% 2 = 0, 1024, '{}', 500 + tokens, sha256(n::text::bytea),
    ('00000000-0000-0000-0001-00000000000' || model %% 8)::uuid, 'host-' || model %% 8, 1,
    at + interval '5 ms', at + interval '150 ms', at + interval '2 s', at + interval '2 s',
    outcome, CASE outcome WHEN 'completed' THEN 'finished' ELSE outcome END,
    CASE outcome WHEN 'completed' THEN 'end_turn' ELSE '' END, '', sha256(n::text::bytea),
    100 + tokens, tokens / 2, tokens / 4, 50 + tokens / 3, 0,
    CASE WHEN outcome <> 'running' THEN 100 + tokens END,
    CASE WHEN outcome <> 'running' THEN at + interval '2.1 s' END
FROM (
    SELECT *,
        CASE WHEN team < 500 THEN 1 WHEN team < 700 AND n < %(count)s / 2 THEN 2
            ELSE 3 + team %% (cardinality(%(teams)s::bigint[]) - 2) END AS place,
        CASE WHEN key < 700 THEN 1 WHEN key < 900 THEN 2 WHEN key < 970 THEN 3
            WHEN key < 999 THEN 4 ELSE 5 END AS key_number,
        CASE WHEN n > %(count)s - 20 THEN 'running' WHEN status < 940 THEN 'completed'
            WHEN status < 970 THEN 'failed' ELSE 'cancelled' END AS outcome
    FROM drawn
) AS request
"""

_ACCOUNTS = """
INSERT INTO jobs_account (team_id, balance_micros, entries)
SELECT team_id, 1000000000 - coalesce(sum(cost_micros), 0), 1 + count(cost_micros)
FROM jobs_requestrecord GROUP BY team_id
"""

# Each account begins with a top-up; its other entries are its requests.
_LEDGER = """
INSERT INTO jobs_ledgerentry (
    account_id, number, kind, reference, amount_micros, balance_after_micros, created_at,
    description, actor, request_id, model, lane, input_tokens, cached_tokens,
    cache_written_tokens, output_tokens
)
SELECT team_id, row_number() OVER entries, kind, reference, amount, sum(amount) OVER entries, at,
    '', '', request_id, model, lane, input_tokens, cached_tokens, cache_written_tokens,
    output_tokens
FROM (
    SELECT team_id, 'topup' AS kind, 'first' AS reference, 1000000000 AS amount,
        %(now)s - %(days)s * interval '1 day' AS at, NULL::uuid AS request_id, '' AS model,
        '' AS lane, 0::bigint AS input_tokens, 0::bigint AS cached_tokens,
        0::bigint AS cache_written_tokens, 0::bigint AS output_tokens
    FROM jobs_account
    UNION ALL
    SELECT team_id, 'usage', id::text, -cost_micros, settled_at, id, model, lane, input_tokens,
        cached_tokens, cache_written_tokens, output_tokens
    FROM jobs_requestrecord WHERE cost_micros IS NOT NULL
) AS movement
WINDOW entries AS (PARTITION BY team_id ORDER BY at, reference)
ORDER BY at
"""

_USAGE = """
INSERT INTO jobs_usageday (
    team_id, key_id, day, model, lane, requests, input_tokens, cached_tokens,
    cache_written_tokens, output_tokens, cost_micros
)
SELECT team_id, key_id, (settled_at AT TIME ZONE 'UTC')::date, model, lane, count(*),
    sum(input_tokens), sum(cached_tokens), sum(cache_written_tokens), sum(output_tokens),
    sum(cost_micros)
FROM jobs_requestrecord WHERE cost_micros IS NOT NULL GROUP BY 1, 2, 3, 4, 5
"""

# Of two requests in a hundred something is kept; what, makes no difference here.
_BODIES = """
INSERT INTO jobs_requestbody (record_id, created_at)
SELECT id, created_at FROM jobs_requestrecord ORDER BY created_at DESC LIMIT %(count)s / 50
"""

TABLES = (
    "jobs_requestrecord",
    "jobs_requestbody",
    "jobs_ledgerentry",
    "jobs_usageday",
    "jobs_requestminute",
    "jobs_latencyminute",
)


@dataclass(frozen=True)
class Filled:
    """What was made. The keys and the request are the big team's."""

    big_team: int
    departed_team: int
    small_team: int
    common_key: UUID
    rare_key: UUID
    request_id: UUID
    now: datetime


def fill(count: int, big_team: int) -> Filled:
    """Make so many requests, half of them of the given team, the others of new ones."""
    now = timezone.now()
    for model in MODELS:
        Model.objects.create(id=model, context_tokens=1, backend=Model.Backend.SCRIPTED)
    others = [Team.objects.create(name=f"team {number}").pk for number in range(2, TEAMS + 1)]
    values: dict[str, Any] = {
        "count": count,
        "days": DAYS,
        "now": now,
        "teams": [big_team, *others],
    }
    with connection.cursor() as cursor:
        cursor.execute(_DRAWN, values)
        cursor.execute(_TRAIL, values)
        cursor.execute("DROP TABLE drawn")
        cursor.execute(_ACCOUNTS)
        # It looks at each entry for itself; the sums above are right by construction.
        cursor.execute("ALTER TABLE jobs_ledgerentry DISABLE TRIGGER ledger_follows")
        cursor.execute(_LEDGER, values)
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("ALTER TABLE jobs_ledgerentry ENABLE TRIGGER ledger_follows")
        cursor.execute(_USAGE)
        cursor.execute(_BODIES, values)
        cursor.execute(
            "SELECT id FROM jobs_requestrecord WHERE team_id = %s AND cost_micros IS NOT NULL"
            " ORDER BY created_at DESC LIMIT 1",
            [big_team],
        )
        (request_id,) = cursor.fetchone()
    return Filled(
        big_team=big_team,
        departed_team=others[0],
        small_team=others[1],
        common_key=_key(1),
        rare_key=_key(5),
        request_id=request_id,
        now=now,
    )


def _key(number: int) -> UUID:
    digest = hashlib.md5(f"key {number} of team 1".encode(), usedforsecurity=False)
    return UUID(digest.hexdigest())


def analyze() -> None:
    """Tell the planner what is there, as autovacuum does in time."""
    with connection.cursor() as cursor:
        cursor.execute(f"ANALYZE {', '.join(TABLES)}")
