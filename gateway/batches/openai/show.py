"""A batch as OpenAI's clients see it."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from gateway.files.names import file_name
from gateway.request_ids import parse_id
from jobs.models import Batch

_PREFIX = "batch_"
_Status = Batch.Status


def batch_name(batch_id: UUID) -> str:
    """Return the id as clients see it."""
    return f"{_PREFIX}{batch_id}"


def parse_batch_name(text: str) -> UUID | None:
    """Return the id in what a client sent; None if it cannot be one of OpenAI's batches."""
    return parse_id(text, _PREFIX)


def show_batch(batch: Batch) -> dict[str, Any]:
    """Return the Batch object.

    `failed` counts every row that has no answer: OpenAI's counts have no place of their own for
    those that were cancelled or have expired, and the error file has a line for each.
    """
    return {
        "id": batch_name(batch.id),
        "object": "batch",
        "endpoint": batch.endpoint,
        "model": batch.model or None,
        "errors": _errors(batch),
        "input_file_id": _file(batch.input_file_ref),
        "completion_window": "24h",
        "status": batch.status,
        "output_file_id": _file(batch.output_file_id),
        "error_file_id": _file(batch.error_file_id),
        "created_at": _seconds(batch.created_at),
        "in_progress_at": _seconds(batch.in_progress_at),
        "expires_at": _seconds(batch.expires_at),
        "finalizing_at": _seconds(batch.finalizing_at),
        "completed_at": _ended(batch, _Status.COMPLETED),
        "failed_at": _ended(batch, _Status.FAILED),
        "expired_at": _ended(batch, _Status.EXPIRED),
        "cancelling_at": _seconds(batch.cancelling_at),
        "cancelled_at": _ended(batch, _Status.CANCELLED),
        "request_counts": {
            "total": batch.total,
            "completed": batch.completed,
            "failed": batch.failed + batch.cancelled + batch.expired,
        },
        "usage": {
            "input_tokens": batch.input_tokens,
            "input_tokens_details": {"cached_tokens": batch.cached_tokens},
            "output_tokens": batch.output_tokens,
            "output_tokens_details": {"reasoning_tokens": batch.thinking_tokens},
            "total_tokens": batch.input_tokens + batch.output_tokens,
        },
        "metadata": batch.metadata or None,
        # Not OpenAI's: what the answers cost so far.
        "cost_micros": batch.cost_micros,
    }


def _errors(batch: Batch) -> dict[str, Any] | None:
    if not batch.errors:
        return None
    empty = {"code": None, "line": None, "message": None, "param": None}
    return {"object": "list", "data": [empty | error for error in batch.errors]}


def _file(file_id: UUID | None) -> str | None:
    return file_name(file_id) if file_id is not None else None


def _seconds(moment: datetime | None) -> int | None:
    return int(moment.timestamp()) if moment is not None else None


def _ended(batch: Batch, status: str) -> int | None:
    return _seconds(batch.ended_at) if batch.status == status else None
