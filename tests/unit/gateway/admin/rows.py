"""Rows for tests of the admin: batches, their rows, files, stored responses and streams."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import uuid_utils
from django.test import Client

from jobs.models import Batch, ResponseStream, StoredFile, StoredResponse, Work

BATCHES = "/admin/jobs/batch/"
NOON = datetime(2026, 8, 7, 12, tzinfo=UTC)
KEY_ID = uuid.uuid4()


def new_id() -> uuid.UUID:
    return uuid.UUID(str(uuid_utils.uuid7()))


def make_batch(**fields: Any) -> Batch:
    empty: dict[str, Any] = {
        "id": new_id(),
        "form": "openai",
        "team_id": 7,
        "team_name": "blue",
        "key_id": KEY_ID,
        "endpoint": "/v1/chat/completions",
        "model": "tiny",
        "status": "in_progress",
        "expires_at": NOON + timedelta(days=1),
    }
    return Batch.objects.create(**(empty | fields))


def make_row(batch: Batch | None, line: int = 1, **fields: Any) -> Work:
    empty: dict[str, Any] = {
        "id": new_id(),
        "batch": batch,
        "line": line,
        "custom_id": f"row-{line}",
        "team_id": 7,
        "key_id": KEY_ID,
        "dialect": "chat",
        "model": "tiny",
        "lane": "batch",
        "rank": 3,
        "deadline_at": NOON + timedelta(days=1),
        "request": b"x",
    }
    return Work.objects.create(**(empty | fields))


def make_file(**fields: Any) -> StoredFile:
    empty: dict[str, Any] = {
        "id": new_id(),
        "team_id": 7,
        "filename": "rows.jsonl",
        "purpose": "batch",
        "size_bytes": 10,
        "digest": bytes(range(32)),
        "name": "7/rows",
    }
    return StoredFile.objects.create(**(empty | fields))


def make_response(**fields: Any) -> StoredResponse:
    empty: dict[str, Any] = {
        "id": new_id(),
        "team_id": 7,
        "key_id": KEY_ID,
        "model": "tiny",
        "lane": "background",
        "background": True,
        "deadline_at": NOON + timedelta(days=1),
        "expires_at": NOON + timedelta(days=30),
    }
    return StoredResponse.objects.create(**(empty | fields))


def make_stream(**fields: Any) -> ResponseStream:
    return ResponseStream.objects.create(**({"id": new_id(), "team_id": 7} | fields))


def cancel(client: Client, path: str, *rows: Any, confirmed: str = "yes") -> str:
    """Choose rows and cancel them; return the page that comes then."""
    ids = [str(row.pk) for row in rows]
    chosen = {"action": "cancel", "_selected_action": ids, "confirmed": confirmed}
    return client.post(path, chosen, follow=True).content.decode()
