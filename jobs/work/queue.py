"""The order in which an engine takes the work of its model.

What is urgent comes first, the earliest deadline before all, whose ever it is. Then background
responses, then batches, in either lane fair between teams: a place goes to the team that has the
fewest rows of any kind running on this engine. Fair on each engine is fair on all of them together,
and costs a look at what this engine runs, not at what hundreds do. Of a team, the earliest deadline
is first, and of one deadline, as all rows of a batch have, rows that begin alike follow each other.

However many rows and teams wait, no more of them are read than there are places, and teams that
have rows here already. Where teams are more than that, they take turns, in a ring.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any, NamedTuple

from django.db import connection

from inference.request import Lane
from jobs.work import policy, rows
from jobs.work.fairness import share
from jobs.work.records import Engine
from jobs.work.rows import Row

_RANKS = [policy.URGENT_RANK, *sorted(map(policy.rank, (Lane.BACKGROUND, Lane.BATCH)))]

_WAITS = "state = 'pending' AND model = %(model)s AND rank = "
_MAY_RUN = "deadline_at > now() AND (not_before IS NULL OR not_before <= now())"
_IN_ORDER = "ORDER BY deadline_at, prefix, id"
_TAKE = f"""
UPDATE {rows.TABLE}
SET state = 'running', worker_id = %(worker)s, attempts = attempts + 1, taken_at = now(),
    not_before = NULL
WHERE id = ANY(ARRAY({{chosen}}))
RETURNING rank, prefix, request, {rows.COLUMNS}
"""  # noqa: S608
_TAKE_URGENT = _TAKE.format(
    chosen=f"""
    SELECT id FROM {rows.TABLE}
    WHERE {_WAITS} {policy.URGENT_RANK} AND team_id <> ALL(%(not_of)s::bigint[]) AND {_MAY_RUN}
    {_IN_ORDER} LIMIT %(places)s FOR NO KEY UPDATE SKIP LOCKED
    """  # noqa: S608
)
_TAKE_NAMED = _TAKE.format(
    chosen=f"""
    SELECT id FROM {rows.TABLE}
    WHERE id = ANY(%(named)s::uuid[]) AND state = 'pending' AND model = %(model)s
        AND team_id <> ALL(%(not_of)s::bigint[]) AND {_MAY_RUN}
    {_IN_ORDER} LIMIT %(places)s FOR NO KEY UPDATE SKIP LOCKED
    """  # noqa: S608
)
# Rows are locked one by one, as long as there are places. By the inner limit PostgreSQL knows
# beforehand that they are few: it takes a limit that it cannot know for a tenth of the rows.
_TAKE_SHARES = _TAKE.format(
    chosen=f"""
    SELECT theirs.id
    FROM unnest(%(teams)s::bigint[], %(shares)s::int[]) AS share (team_id, places), LATERAL (
        SELECT id FROM (
            SELECT id FROM {rows.TABLE}
            WHERE {_WAITS} %(rank)s AND team_id = share.team_id AND {_MAY_RUN}
            {_IN_ORDER} LIMIT %(places)s FOR NO KEY UPDATE SKIP LOCKED
        ) AS first LIMIT share.places
    ) AS theirs
    """  # noqa: S608
)
_WAITING_RANKS = f"""
SELECT rank FROM unnest(%(ranks)s::int[]) AS rank
WHERE EXISTS (SELECT FROM {rows.TABLE} WHERE {_WAITS} rank.rank) ORDER BY rank
"""  # noqa: S608
# By the index from one team to the next, once round from where it ended the last time, until there
# are as many teams with nothing here as there are places: no other could come before those.
_RING = f"""
WITH RECURSIVE running AS MATERIALIZED (
    SELECT team_id, count(*) AS has FROM {rows.TABLE}
    WHERE worker_id = %(worker)s AND state = 'running' GROUP BY team_id
), ring (step, team_id, lap, found) AS (
    SELECT 0, %(after)s::bigint, 0, 0
    UNION ALL
    SELECT step + 1, next.team_id, next.lap, found + (
        next.team_id <> ALL(%(nothing_of)s::bigint[])
        AND next.team_id NOT IN (SELECT team_id FROM running)
    )::int
    FROM ring, LATERAL (
        (
            SELECT team_id, ring.lap FROM {rows.TABLE}
            WHERE {_WAITS} %(rank)s AND team_id > ring.team_id AND {_MAY_RUN}
            ORDER BY team_id LIMIT 1
        )
        UNION ALL
        (
            SELECT team_id, 1 FROM {rows.TABLE}
            WHERE {_WAITS} %(rank)s AND ring.lap = 0 AND {_MAY_RUN}
            ORDER BY team_id LIMIT 1
        )
        LIMIT 1
    ) AS next
    WHERE found < %(places)s AND (next.lap = 0 OR next.team_id <= %(after)s)
)
SELECT team_id, coalesce(has, 0) FROM ring LEFT JOIN running USING (team_id)
WHERE step > 0 ORDER BY step
"""  # noqa: S608


class Ask(NamedTuple):
    """How many rows an engine asks for, which before all others, and of which teams none."""

    places: int
    first: Collection[str] = ()
    not_of: Collection[int] = ()


class Taken(NamedTuple):
    """A row that is the engine's now, and what it asks for."""

    row: Row
    request: bytes
    rank: int
    prefix: int

    @property
    def is_urgent(self) -> bool:
        """Whether its deadline was near."""
        return self.rank == policy.URGENT_RANK


class Queue:
    """What waits for one engine, which is first in it and which is next."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        # The team that had the last turn, of each rank.
        self._after = dict.fromkeys(_RANKS, 0)

    def take(self, ask: Ask) -> list[Taken]:
        """Make rows the engine's, in the caller's transaction, and return them in their order.

        What others are taking at this moment is passed over.
        """
        not_of = ask.not_of
        taken = self._take_named(ask) if ask.first else []
        if len(taken) == ask.places:
            return sorted(taken, key=_order)
        for (rank,) in self._ask(_WAITING_RANKS, ranks=_RANKS):
            left = ask.places - len(taken)
            if rank == policy.URGENT_RANK:
                taken += self._taken(_TAKE_URGENT, not_of=list(not_of), places=left)
            else:
                taken += self._take_shares(rank, left, set(not_of))
        return sorted(taken, key=_order)

    def _take_named(self, ask: Ask) -> list[Taken]:
        return self._taken(
            _TAKE_NAMED, named=list(ask.first), not_of=list(ask.not_of), places=ask.places
        )

    def _take_shares(self, rank: int, places: int, nothing_of: set[int]) -> list[Taken]:
        taken: list[Taken] = []
        while left := places - len(taken):
            running = self._teams(rank, left, nothing_of)
            shares = share(left, running)
            if not shares:
                break
            theirs = self._taken(
                _TAKE_SHARES,
                rank=rank,
                teams=list(shares),
                shares=list(shares.values()),
                places=left,
            )
            got = Counter(each.row.team_id for each in theirs)
            nothing_of |= {team_id for team_id in shares if got[team_id] < shares[team_id]}
            self._after[rank] = [team_id for team_id in running if team_id in shares][-1]
            taken += theirs
        return taken

    def _teams(self, rank: int, places: int, nothing_of: Collection[int]) -> dict[int, int]:
        """Return teams among whom to share the places, by turns, and what each has running here."""
        found = self._ask(
            _RING,
            rank=rank,
            after=self._after[rank],
            nothing_of=list(nothing_of),
            places=places,
        )
        return {team_id: has for team_id, has in found if team_id not in nothing_of}

    def _taken(self, statement: str, **parameters: Any) -> list[Taken]:
        return [
            Taken(rows.read(values), bytes(request), rank, prefix)
            for rank, prefix, request, *values in self._ask(statement, **parameters)
        ]

    def _ask(self, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
        who = {"model": self.engine.model, "worker": self.engine.id}
        with connection.cursor() as cursor:
            cursor.execute(statement, who | parameters)
            return list(cursor.fetchall())


def _order(taken: Taken) -> tuple[object, ...]:
    row = taken.row
    return taken.rank, row.deadline_at, row.team_id, taken.prefix, row.id
