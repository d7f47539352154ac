"""Ends pieces of work: what they came to, what they cost and whose counts change, all at once.

Rows are locked first, then accounts, batches, stored responses and feeds, each in one order: two
who end work at the same time never wait for each other in a ring.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from django.db import connection

from inference.errors import ErrorCode
from inference.events import Event, Failed, Finished
from inference.fold import Answer
from inference.transport.records import Record
from jobs.models import RequestRecord, Work
from jobs.packing import pack_answer
from jobs.recorder.batch import write
from jobs.recorder.settling import Settlement
from jobs.work import counts, metric_counts, records, replies, rows
from jobs.work.counts import Sums, Used
from jobs.work.replies import ResponseEnd
from jobs.work.rows import Row

Outcome = Work.Outcome
LATE = "it was not finished when its window ended"
_MESSAGE_LIMIT = 2000


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a locked row ended. `answer` is there for COMPLETED only; then there is no `code`."""

    row: Row
    outcome: Work.Outcome
    answer: Answer | None = None
    events: tuple[Event, ...] = ()
    code: ErrorCode | None = None
    message: str = ""


def keep(ended: Sequence[Ended], told: Sequence[Record], now: datetime) -> list[Settlement]:
    """End rows, in the transaction that has locked them; return what to tell the quota after it.

    `told` are the records of those about which anything is to be in the trail and the ledger.
    Raises `ValueError`, `OverflowError` or what the database does for records that cannot be kept.
    """
    if not ended:
        return []
    settlements = write(told, now)
    metric_counts.count_ended((each.row.model, each.outcome.value) for each in ended)
    used = _used([each.row.id for each in ended])
    _close([each for each in ended if each.row.batch_id], now)
    counts.count(_sums(ended, used), now)
    _reply([each for each in ended if not each.row.batch_id], used, now)
    return settlements


def keep_unserved(refused: Sequence[Ended], now: datetime) -> list[Settlement]:
    """End rows that no engine has done, each with its own `code`; otherwise as `keep`."""
    origins = rows.origins(each.row for each in refused)
    at_s = now.timestamp()
    told = [
        record
        for each in refused
        if each.code is not None
        for record in records.unserved(
            each.row, origins[each.row.id], each.code, each.message, at_s
        )
    ]
    return keep(refused, told, now)


def _used(ids: list[UUID]) -> dict[UUID, Used]:
    names = Used._fields
    found = RequestRecord.objects.filter(pk__in=ids).values_list("pk", *names)
    return {request_id: Used(*used) for request_id, *used in found}


def _sums(ended: Iterable[Ended], used: dict[UUID, Used]) -> dict[UUID, Sums]:
    sums: dict[UUID, Sums] = defaultdict(Sums)
    for each in ended:
        if each.row.batch_id:
            sums[each.row.batch_id].add(each.outcome, used.get(each.row.id))
    return sums


_CLOSE = f"""
UPDATE {rows.TABLE} AS work
SET state = 'done', request = '', ended_at = %s, outcome = ended.outcome,
    answer = ended.answer, error_code = ended.code, error_message = ended.message
FROM unnest(%s::uuid[], %s::text[], %s::bytea[], %s::text[], %s::text[])
    AS ended (id, outcome, answer, code, message)
WHERE work.id = ended.id
"""  # noqa: S608


def _close(ended: Sequence[Ended], now: datetime) -> None:
    """Mark a batch's rows as done."""
    if not ended:
        return
    columns: list[list[Any]] = [
        [each.row.id for each in ended],
        [each.outcome.value for each in ended],
        [pack_answer(each.answer) if each.answer is not None else b"" for each in ended],
        [each.code.value if each.code is not None else "" for each in ended],
        [_clean(each.message) for each in ended],
    ]
    with connection.cursor() as cursor:
        cursor.execute(_CLOSE, [now, *columns])


def _reply(ended: Sequence[Ended], used: dict[UUID, Used], now: datetime) -> None:
    """End stored responses; nothing but them keeps what becomes of their work."""
    if not ended:
        return
    Work.objects.filter(pk__in=[each.row.id for each in ended]).delete()
    ends = {}
    for each in ended:
        use = used.get(each.row.id)
        ends[each.row.id] = _response_end(each, use.cost_micros if use else None)
    replies.end(ends, now)


def _response_end(ended: Ended, cost_micros: int | None) -> ResponseEnd:
    events = _whole(ended) if ended.row.logged else ()
    if ended.answer is not None:
        end = replies.completed(ended.answer)
    else:
        end = replies.failed(ended.code or ErrorCode.INTERNAL, _clean(ended.message))
    return msgspec.structs.replace(end, events=events, cost_micros=cost_micros)


def _whole(ended: Ended) -> tuple[Event, ...]:
    """Return a run's events with the final one: what its log says, if that is how it ended."""
    events = ended.events
    if ended.answer is not None:
        final: Finished | Failed = ended.answer.finished
    else:
        final = Failed(code=ended.code or ErrorCode.INTERNAL, message=ended.message)
    if events and isinstance(events[-1], type(final)):
        return events
    if events and isinstance(events[-1], Finished | Failed):
        events = events[:-1]
    return (*events, final)


def _clean(message: str) -> str:
    # PostgreSQL keeps no NUL.
    return message[:_MESSAGE_LIMIT].replace("\0", "")
