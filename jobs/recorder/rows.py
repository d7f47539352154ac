"""Rows of the audit trail as the recorder reads and writes them: many at once, as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec
from django.db import connection

from jobs.bulk import insert
from jobs.models import RequestRecord

NO_BYTES = "\\x"


class Row(msgspec.Struct, kw_only=True):
    """The columns of a `RequestRecord`, but for its seal. Bytes are as `jobs.bulk.bytea` says."""

    id: str
    created_at: datetime
    deadline_at: datetime | None = None
    team_id: int = 0
    team_name: str = ""
    key_id: str | None = None
    key_name: str = ""
    client: str = ""
    address: str = ""
    trace_id: str = ""
    session_id: str = ""
    type: str = RequestRecord.Type.STANDALONE.value
    batch_id: str | None = None
    stream_id: str | None = None
    custom_id: str = ""
    dialect: str = ""
    lane: str = ""
    model: str = ""
    requested_model: str = ""
    streamed: bool = False
    max_tokens: int = 0
    ignored_fields: list[str] = []
    body_bytes: int = 0
    body_digest: str = NO_BYTES
    engine_id: str | None = None
    engine_host: str = ""
    attempts: int = 0
    taken_at: datetime | None = None
    first_token_at: datetime | None = None
    engine_ended_at: datetime | None = None
    closed_at: datetime | None = None
    status: str = RequestRecord.Status.RUNNING.value
    ending: str = ""
    detail: str = ""
    error: str = ""
    answer_digest: str = NO_BYTES
    input_tokens: int = 0
    cached_tokens: int = 0
    cache_written_tokens: int = 0
    output_tokens: int = 0
    thinking_tokens: int = 0
    cost_micros: int | None = None
    settled_at: datetime | None = None


_decode = msgspec.json.Decoder(list[Row]).decode
_TABLE = RequestRecord._meta.db_table
_SELECT = f"SELECT coalesce(json_agg(row), '[]')::text FROM {_TABLE} AS row WHERE"  # noqa: S608
# A request that ended is awaited from then on, one of which nothing was heard from its deadline on.
_OVERDUE = (
    f"{_SELECT} id IN (SELECT id FROM {_TABLE} WHERE settled_at IS NULL"  # noqa: S608
    " AND coalesce(closed_at, engine_ended_at, deadline_at, taken_at) <= %s LIMIT %s)"
)
_UPDATED = ", ".join(f"{name} = EXCLUDED.{name}" for name in Row.__struct_fields__ if name != "id")
# What is sealed stays as it is, though a record comes years late.
_UPDATE = f"ON CONFLICT (id) DO UPDATE SET {_UPDATED} WHERE {_TABLE}.seal_id IS NULL"


def load(ids: Iterable[str]) -> dict[str, Row]:
    """Return those of the rows that are there, by their ids (UUIDs in canonical form)."""
    return {row.id: row for row in _select(f"{_SELECT} id = ANY(%s::uuid[])", [list(ids)])}


def overdue(before: datetime, limit: int) -> list[Row]:
    """Return unsettled rows about which everything should have been said before this moment."""
    return _select(_OVERDUE, [before, limit])


def sealed(ids: Sequence[str]) -> set[str]:
    """Return those of these rows that are sealed. After `save` none of them is being sealed."""
    if not ids:
        return set()
    found = RequestRecord.objects.filter(pk__in=ids, seal__isnull=False)
    return {str(request_id) for request_id in found.values_list("pk", flat=True)}


def save(rows: Sequence[Row]) -> None:
    """Write rows, new or not; those that are sealed meanwhile stay as they are."""
    insert(RequestRecord, rows, _UPDATE)


def _select(statement: str, parameters: list[Any]) -> list[Row]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        (text,) = cursor.fetchone()
    return _decode(text)
