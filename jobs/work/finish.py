"""Keeps what engines have done: each piece of work once, with what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.db import transaction

from inference.engine.work import WorkResult
from inference.errors import ErrorCode
from inference.transport.records import FINAL, Ending
from jobs.recorder import rows as trail
from jobs.recorder.settling import Settlement, settlements
from jobs.work import leases, policy, records, rows
from jobs.work.credit import released
from jobs.work.ending import LATE, Ended, Outcome, keep, keep_unserved
from jobs.work.records import Engine
from jobs.work.rows import Row


def finish(engine: Engine, results: Sequence[WorkResult], now: datetime) -> list[Settlement]:
    """Keep results, all or nothing; return what to tell the quota after it.

    What is not the engine's any more is passed over; of what was kept before it is returned again
    what to tell. Raises `ValueError`, `OverflowError`, or what the database does, for results that
    cannot be kept.
    """
    by_id = {result.item.request.id: result for result in results}
    with transaction.atomic():
        running = rows.lock(
            "id = ANY(%s::uuid[]) AND worker_id = %s AND state = 'running'",
            [list(by_id), engine.id],
        )
        lost, again, over = _sort(running, by_id)
        origins = rows.origins(each.row for each in over)
        told = [
            record
            for each in over
            for record in records.of_result(
                each.row, origins[each.row.id], by_id[str(each.row.id)], engine
            )
        ]
        untold = keep(over, told, now)
        untold += leases.put_back(lost, now, leases.Back.DIED)
        times = [now + policy.pause_after(row.attempts) for row in again]
        leases.return_rows([row.id for row in again], times, leases.Back.FAILED)
        untold += released(again)
        if missing := by_id.keys() - {str(row.id) for row in running}:
            untold += settlements(trail.load(missing).values(), now)
    return untold


def fail(engine: Engine, result: WorkResult, message: str, now: datetime) -> list[Settlement]:
    """End a piece of work whose result cannot be kept as it is."""
    with transaction.atomic():
        running = rows.lock(
            "id = %s AND worker_id = %s AND state = 'running'",
            [result.item.request.id, engine.id],
        )
        ended = [
            Ended(row=row, outcome=Outcome.FAILED, code=ErrorCode.INTERNAL, message=message)
            for row in running
        ]
        return keep_unserved(ended, now)


def _sort(
    running: Sequence[Row], results: dict[str, WorkResult]
) -> tuple[list[Row], list[Row], list[Ended]]:
    """Tell apart what its engine lost, what is worth another attempt, and what has ended."""
    lost, again, over = [], [], []
    for row in running:
        result = results[str(row.id)]
        if result.ending not in FINAL:
            lost.append(row)
        elif (
            result.ending is Ending.FAILED
            and not (row.cancel_requested or row.logged)
            and not policy.is_final(_code(result), row.attempts)
        ):
            again.append(row)
        else:
            over.append(_ended(row, result))
    return lost, again, over


def _ended(row: Row, result: WorkResult) -> Ended:
    events = result.events
    if result.ending is Ending.TIMEOUT:
        code, outcome, message = ErrorCode.EXPIRED, Outcome.EXPIRED, LATE
    elif row.is_cancelled_response or result.ending is Ending.CANCELLED:
        code, outcome, message = ErrorCode.CANCELLED, Outcome.CANCELLED, ""
    elif result.answer is not None:
        return Ended(row=row, outcome=Outcome.COMPLETED, answer=result.answer, events=events)
    else:
        code, outcome, message = _code(result), Outcome.FAILED, result.message
    return Ended(row=row, outcome=outcome, events=events, code=code, message=message)


def _code(result: WorkResult) -> ErrorCode:
    try:
        return ErrorCode(result.detail)
    except ValueError:
        return ErrorCode.INTERNAL
