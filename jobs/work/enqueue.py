"""Puts work into the database, and wakes the engines that may take it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

import msgspec
from django.db import connection, transaction
from kombu.exceptions import OperationalError
from psycopg.types.json import Jsonb

from inference.request import Lane
from jobs.models import Work
from jobs.work import policy

logger = logging.getLogger(__name__)

# What a chunk may have. Between two of them the connection is free for who makes the rows.
_CHUNK_ROWS = 1_000
_CHUNK_BYTES = 8 * 1024 * 1024
# Engines look by themselves every second: a message that is older wakes nobody.
_WAKE_EXPIRES_S = 10


class NewWork(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of work as it begins; the fields are columns of `jobs.models.Work`.

    `id` and the others' ids are UUIDs in canonical form. `request` is what
    `jobs.packing.pack_request` makes, and `prefix` what `jobs.work.prefix.prefix_of` does. With an
    `error_code` (one of `inference.errors.ErrorCode`) the row has failed before it could be run: it
    needs neither then, and no model.
    `origin` may have the fields `team_name`, `key_name`, `client`, `address`, `trace_id`,
    `session_id` and `stream_id` of the audit trail; a batch says them for its rows.
    """

    id: str
    team_id: int
    key_id: str
    dialect: str
    model: str
    lane: Lane
    created_at: datetime
    deadline_at: datetime
    batch_id: str | None = None
    line: int = 0
    custom_id: str = ""
    max_tokens: int = 0
    body_bytes: int = 0
    body_digest: bytes = b""
    ignored_fields: tuple[str, ...] = ()
    hold_micros: int = 0
    logged: bool = False
    origin: dict[str, str] = {}
    request: bytes = b""
    prefix: int = 0
    echo: bytes | None = None
    error_code: str = ""
    error_message: str = ""


_TYPES = {
    "id": "uuid",
    "batch_id": "uuid",
    "line": "int4",
    "custom_id": "varchar",
    "team_id": "int8",
    "key_id": "uuid",
    "dialect": "varchar",
    "model": "varchar",
    "lane": "varchar",
    "rank": "int2",
    "created_at": "timestamptz",
    "deadline_at": "timestamptz",
    "max_tokens": "int8",
    "body_bytes": "int8",
    "body_digest": "bytea",
    "ignored_fields": "jsonb",
    "hold_micros": "int8",
    "logged": "bool",
    "origin": "jsonb",
    "request": "bytea",
    "prefix": "int8",
    "echo": "bytea",
    "state": "varchar",
    "attempts": "int2",
    "deaths": "int2",
    "preemptions": "int2",
    "cancel_requested": "bool",
    "ended_at": "timestamptz",
    "outcome": "varchar",
    "answer": "bytea",
    "error_code": "varchar",
    "error_message": "varchar",
}
_COPY = f"COPY {Work._meta.db_table} ({', '.join(_TYPES)}) FROM STDIN (FORMAT BINARY)"


def insert(rows: Iterable[NewWork]) -> int:
    """Insert rows in the caller's transaction; return how many.

    They are taken from the iterable in chunks, so that any number needs little memory, and making
    them may ask the database. Raises `IntegrityError` for a batch's line that is there already.
    """
    count = 0
    for chunk in _chunks(rows):
        count += len(chunk)
        _copy(chunk)
    return count


def _copy(rows: Sequence[NewWork]) -> None:
    # Django wraps what its own methods raise, and knows nothing of this one.
    wrapped = connection.wrap_database_errors
    with wrapped, connection.cursor() as cursor, cursor.copy(_COPY) as copy:
        copy.set_types(list(_TYPES.values()))
        for row in rows:
            copy.write_row(_columns(row))


def wake(model: str) -> None:
    """Tell the model's engines that there is work. Without a broker they find it by themselves."""
    send("jobs.wake_engines", model, queue=f"engine.{model}", expires_s=_WAKE_EXPIRES_S)


def wake_on_commit(models: Iterable[str]) -> None:
    """Tell the engines of these models once the caller's transaction is committed."""
    for model in sorted(set(models)):
        transaction.on_commit(partial(wake, model))


def send(task: str, argument: str, *, queue: str = "default", expires_s: float = 60) -> None:
    """Send a task by its name; whatever it is for, a sweep sends it again if it is lost."""
    from jobs.celery import app

    try:
        app.send_task(task, (argument,), queue=queue, expires=expires_s, retry=False)
    except OperationalError as error:
        logger.warning("%s cannot be sent now: %s", task, error)


def _chunks(rows: Iterable[NewWork]) -> Iterator[list[NewWork]]:
    chunk: list[NewWork] = []
    size = 0
    for row in rows:
        chunk.append(row)
        size += len(row.request)
        if len(chunk) >= _CHUNK_ROWS or size >= _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _columns(row: NewWork) -> tuple[Any, ...]:
    failed = bool(row.error_code)
    return (
        UUID(row.id),
        row.batch_id and UUID(row.batch_id),
        row.line,
        row.custom_id,
        row.team_id,
        UUID(row.key_id),
        row.dialect,
        row.model,
        row.lane.value,
        policy.rank(row.lane),
        row.created_at,
        row.deadline_at,
        row.max_tokens,
        row.body_bytes,
        row.body_digest,
        Jsonb(row.ignored_fields),
        row.hold_micros,
        row.logged,
        Jsonb(row.origin),
        row.request,
        row.prefix,
        row.echo,
        (Work.State.DONE if failed else Work.State.PENDING).value,
        0,
        0,
        0,
        False,
        row.created_at if failed else None,
        Work.Outcome.FAILED.value if failed else "",
        b"",
        row.error_code,
        row.error_message[:2000],
    )
