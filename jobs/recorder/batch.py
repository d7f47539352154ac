"""Writes a batch of records: what happens in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from inference.transport.records import Admitted, Record
from jobs.bulk import insert
from jobs.models import KeyUse
from jobs.recorder import bodies, merge, minutes, rows
from jobs.recorder.bodies import Body
from jobs.recorder.rows import Row
from jobs.recorder.settling import Settlement, settle, settlements


class _Use(msgspec.Struct):
    """The columns of a `KeyUse`."""

    key_id: str
    last_used_at: datetime


_LATEST = (
    "ON CONFLICT (key_id) DO UPDATE SET"
    " last_used_at = greatest(EXCLUDED.last_used_at, jobs_keyuse.last_used_at)"
)


def write(records: Sequence[Record], now: datetime) -> list[Settlement]:
    """Merge records into their rows, and settle those that are complete.

    Call it in a transaction, as the only one who does for these requests: the recorder, or who ends
    work. What others may change too is locked in one order. A request whose row was settled before
    is in what is returned too: whoever settled it may have died before it could tell the quota.
    Raises `ValueError` or `OverflowError` for records that say what cannot be.
    """
    named = [(merge.request_id(record), record) for record in records]
    known = rows.load({request_id for request_id, _ in named})
    counted = minutes.shares(known.values())
    changed: dict[str, Row] = {}
    said: dict[str, Body] = {}
    uses: dict[str, datetime] = {}
    for request_id, record in named:
        row = known.get(request_id)
        if row is None:
            row = known[request_id] = merge.begin(request_id, record)
        if not merge.merge(row, record):
            continue
        changed[request_id] = row
        if bodies.says(record):
            body = said.setdefault(
                request_id, Body(record_id=request_id, created_at=row.created_at)
            )
            bodies.add(body, record)
        if isinstance(record, Admitted):
            uses[record.key_id] = max(row.created_at, uses.get(record.key_id, row.created_at))
    settle([row for row in changed.values() if merge.is_complete(row)], now)
    rows.save(list(changed.values()))
    minutes.count(list(changed.values()), counted, now)
    bodies.save(list(said.values()))
    insert(KeyUse, [_Use(key_id, at) for key_id, at in sorted(uses.items())], _LATEST)
    return settlements(known.values(), now)
