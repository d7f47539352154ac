"""Settles what nobody will say any more about: its gateway or its engine was killed."""

from __future__ import annotations

from datetime import datetime

from jobs.recorder import merge, rows
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
    return settlements(overdue, now)
