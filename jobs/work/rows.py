"""Rows of work as those who end them read them: locked, and without what they ask."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from django.db import connection

from jobs.models import Batch, Work

TABLE = Work._meta.db_table


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a piece of work when it ends; the fields are columns of `Work`."""

    id: UUID
    batch_id: UUID | None
    custom_id: str
    team_id: int
    key_id: UUID
    dialect: str
    model: str
    lane: str
    created_at: datetime
    deadline_at: datetime
    max_tokens: int
    body_bytes: int
    body_digest: bytes
    ignored_fields: str
    hold_micros: int
    logged: bool
    origin: str
    attempts: int
    deaths: int
    preemptions: int
    cancel_requested: bool
    taken_at: datetime | None

    @property
    def is_cancelled_response(self) -> bool:
        """Whether its caller was told that it is cancelled, and so gets no answer any more."""
        return self.cancel_requested and self.batch_id is None


_NAMES = Row.__struct_fields__
COLUMNS = ", ".join(_NAMES)


def read(values: Sequence[Any]) -> Row:
    """Return the row that these values of `COLUMNS` are."""
    return Row(**dict(zip(_NAMES, values, strict=True)))


def lock(condition: str, parameters: Sequence[Any]) -> list[Row]:
    """Lock the rows for which a condition in SQL holds, and return them.

    In the order of their ids, as everybody does, so that nobody waits in a ring.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {COLUMNS} FROM {TABLE} WHERE {condition} ORDER BY id FOR NO KEY UPDATE",  # noqa: S608
            parameters,
        )
        return [read(values) for values in cursor.fetchall()]


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Who asked for a piece of work, as the audit trail names them."""

    team_name: str = ""
    key_name: str = ""
    client: str = ""
    address: str = ""
    trace_id: str = ""
    session_id: str = ""
    stream_id: str | None = None


_decode_origin = msgspec.json.Decoder(Origin).decode
_OF_BATCH = ("team_name", "key_name", "client", "address")


def origins(rows: Iterable[Row]) -> dict[UUID, Origin]:
    """Return who asked for each row: its batch knows, or it says so itself."""
    rows = list(rows)
    batches = {
        batch_id: Origin(**dict(zip(_OF_BATCH, names, strict=True)))
        for batch_id, *names in Batch.objects.filter(
            pk__in={row.batch_id for row in rows if row.batch_id}
        ).values_list("pk", *_OF_BATCH)
    }
    return {
        row.id: batches[row.batch_id] if row.batch_id else _decode_origin(row.origin)
        for row in rows
    }
