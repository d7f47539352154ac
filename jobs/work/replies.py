"""Ends stored responses, each once, and numbers those that nobody waited for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

import msgspec
from django.db import connection

from inference.errors import ErrorCode
from inference.events import CUT_SHORT, Event
from inference.fold import Answer
from jobs.models import ResponseFeed, StoredResponse
from jobs.packing import pack_answer, pack_events

Status = StoredResponse.Status
_MESSAGE_LIMIT = 2000


class ResponseEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a response ended. `events` are those of a background response that is streamed."""

    status: StoredResponse.Status
    answer: Answer | None = None
    events: tuple[Event, ...] = ()
    error_code: str = ""
    error_message: str = ""
    cost_micros: int | None = None


def completed(answer: Answer) -> ResponseEnd:
    """Return the end of a response that has its answer: one that was cut short is INCOMPLETE."""
    short = answer.finished.reason in CUT_SHORT
    return ResponseEnd(status=Status.INCOMPLETE if short else Status.COMPLETED, answer=answer)


def failed(code: ErrorCode, message: str) -> ResponseEnd:
    """Return the end of a response that has no answer; if its caller left, it is CANCELLED."""
    status = Status.CANCELLED if code is ErrorCode.CANCELLED else Status.FAILED
    return ResponseEnd(status=status, error_code=code.value, error_message=message)


def end(ends: Mapping[UUID, ResponseEnd], now: datetime) -> set[UUID]:
    """End those of these responses that are open; return which. Call it in a transaction.

    Of one that was cancelled before, only what it cost and its events are noted.
    """
    known = StoredResponse.objects.select_for_update().filter(pk__in=list(ends)).order_by("pk")
    rows = list(known.defer("body", "items"))
    ended = [row for row in rows if row.status in StoredResponse.OPEN]
    for row in rows:
        told = ends[row.pk]
        if row.status in StoredResponse.OPEN:
            row.status, row.ended_at = told.status, now
            row.answer = pack_answer(told.answer) if told.answer is not None else b""
            row.error_code = told.error_code
            row.error_message = told.error_message[:_MESSAGE_LIMIT]
        if told.events:
            row.events = pack_events(told.events)
        if told.cost_micros is not None:
            row.cost_micros = told.cost_micros
    _number([row for row in ended if row.background])
    for row in rows:
        row.save(update_fields=_CHANGED)
    return {row.pk for row in ended}


_CHANGED = [
    *("status", "ended_at", "answer", "events"),
    *("error_code", "error_message", "cost_micros", "number"),
]


def _number(ended: list[StoredResponse]) -> None:
    """Give responses the next numbers of their teams, whose feeds stay locked until the commit."""
    by_team: dict[int, list[StoredResponse]] = defaultdict(list)
    for row in ended:
        by_team[row.team_id].append(row)
    for team_id, rows in sorted(by_team.items()):
        last = _reserve(team_id, len(rows))
        for place, row in enumerate(rows):
            row.number = last - len(rows) + 1 + place


def _reserve(team_id: int, count: int) -> int:
    table = ResponseFeed._meta.db_table
    statement = (
        f"INSERT INTO {table} AS feed (team_id, last) VALUES (%s, %s)"  # noqa: S608
        " ON CONFLICT (team_id) DO UPDATE SET last = feed.last + EXCLUDED.last RETURNING last"
    )
    with connection.cursor() as cursor:
        cursor.execute(statement, [team_id, count])
        (last,) = cursor.fetchone()
    return int(last)
