"""Settles what nobody will say any more about: its gateway or its engine was killed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from jobs import ledger
from jobs.models import Work
from jobs.quota.claims import Ended
from jobs.recorder import merge, minutes, rows
from jobs.recorder.settling import Settlement, settle, settlements

LIMIT = 500


def settle_overdue(before: datetime, now: datetime) -> list[Settlement]:
    """Settle at most `LIMIT` requests that should have been told of before a moment.

    Call it in a transaction, as the only one who writes rows, and only with nothing left to read.
    """
    overdue = rows.overdue(before, LIMIT)
    for row in overdue:
        merge.give_up(row)
    settle(overdue, now)
    rows.save(overdue)
    minutes.count(overdue, {}, now)
    return settlements(overdue, now)


def end_late(team_id: int, late: Sequence[str], now: datetime) -> list[Settlement]:
    """Return how to end requests that a quota has waited for in vain, of one team.

    Of one that has no row nobody will ever tell: its gateway died between the quota's answer and
    its first record, before any engine had the request. Of those that were settled the quota was
    not told. The others are settled when they are overdue; work that runs may go on.
    """
    if not late:
        return []
    working = Work.objects.filter(pk__in=late, state=Work.State.RUNNING)
    running = {str(request_id) for request_id in working.values_list("pk", flat=True)}
    known = rows.load(late)
    lost = [
        Ended(request_id=each, settled=True)
        for each in late
        if each not in known and each not in running
    ]
    told = settlements(known.values(), now)
    if lost:
        told.append(Settlement(team_id=team_id, state=ledger.read_state(team_id), requests=lost))
    return told
