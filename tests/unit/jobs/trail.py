"""Makes rows of the audit trail, settled long enough ago to be sealed."""

from __future__ import annotations

import hashlib
import zlib
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import uuid_utils
from django.db import connection
from django.utils import timezone

from jobs.models import RequestBody, RequestRecord
from jobs.seals import seal_batch

LONG_AGO = datetime(2026, 3, 1, 12, 0, 0, 123_456, UTC)


def new_id() -> UUID:
    return UUID(str(uuid_utils.uuid7()))


def make_row(**fields: Any) -> RequestRecord:
    """Put a settled row into the trail, with something in every field unless told otherwise."""
    at = fields.pop("created_at", LONG_AGO)
    row: dict[str, Any] = {
        "id": new_id(),
        "created_at": at,
        "deadline_at": at + timedelta(seconds=600),
        "team_id": 1,
        "team_name": "Größe",
        "key_id": UUID(int=7),
        "key_name": 'a "quoted" key',
        "client": "anthropic/1.0",
        "address": "127.0.0.1",
        "trace_id": "00-ab",
        "session_id": "s1",
        "type": "stream",
        "dialect": "messages",
        "lane": "realtime",
        "model": "m",
        "streamed": True,
        "max_tokens": 100,
        "ignored_fields": ["speed", "container"],
        "body_bytes": 321,
        "body_digest": hashlib.sha256(b"body").digest(),
        "engine_id": UUID(int=9),
        "engine_host": "host",
        "attempts": 1,
        "taken_at": at + timedelta(milliseconds=5),
        "first_token_at": at + timedelta(milliseconds=50),
        "engine_ended_at": at + timedelta(seconds=1),
        "closed_at": at + timedelta(seconds=1, microseconds=1),
        "status": "completed",
        "ending": "finished",
        "detail": "end_turn",
        "error": "none",
        "answer_digest": hashlib.sha256(b"answer").digest(),
        "input_tokens": 30,
        "cached_tokens": 10,
        "cache_written_tokens": 5,
        "output_tokens": 20,
        "thinking_tokens": 2,
        "cost_micros": 17,
        "settled_at": at + timedelta(seconds=2),
    }
    return RequestRecord.objects.create(**(row | fields))


def keep_body(row: RequestRecord, body: bytes | None = b"body", answer: bytes = b"answer") -> None:
    """Keep what a row's request said and what was answered."""
    RequestBody.objects.create(
        record_id=row.id,
        created_at=row.created_at,
        body=None if body is None else zlib.compress(body),
        answer=zlib.compress(answer),
    )


def seal_all() -> None:
    """Seal everything that is there."""
    while seal_batch(timezone.now()):
        pass


def tamper(sql: str, *values: Any, table: str = "jobs_requestrecord") -> None:
    """Do what the database refuses, as one can who owns it."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        cursor.execute(sql, values)
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")
