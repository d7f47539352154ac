"""A batch as sference's clients see it."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from gateway.request_ids import parse_id
from gateway.responses.times import iso
from jobs.models import Batch

_Status = Batch.Status

# It knows no expiry: what there was no time for has failed, and what ended in time is there.
_STATUSES = {
    _Status.VALIDATING: "pending",
    _Status.IN_PROGRESS: "running",
    _Status.CANCELLING: "running",
    _Status.FINALIZING: "running",
    _Status.COMPLETED: "completed",
    _Status.EXPIRED: "completed",
    _Status.FAILED: "failed",
    _Status.CANCELLED: "cancelled",
}


def parse_batch_name(text: str) -> UUID | None:
    """Return the id in what a client sent, a bare UUID; None if it cannot be one."""
    return parse_id(text, "")


def status_of(batch: Batch) -> str:
    """Return where a batch is, in sference's words. None of whose rows has an answer has failed."""
    status = _STATUSES[_Status(batch.status)]
    return "failed" if status == "completed" and not batch.completed else status


def show_batch(batch: Batch) -> dict[str, Any]:
    """Return the batch object."""
    return {
        "id": str(batch.id),
        "status": status_of(batch),
        "window": "24h",
        "request_count": batch.total,
        "created_at": iso(batch.created_at),
        "updated_at": iso(_last_change(batch)),
        "completed_at": iso(batch.ended_at),
        "total_prompt_tokens": batch.input_tokens,
        "total_completion_tokens": batch.output_tokens,
        "total_tokens": batch.input_tokens + batch.output_tokens,
        "total_cost_micros": batch.cost_micros,
    }


def results_url(batch: Batch) -> str | None:
    """Return the path of the results as lines; None as long as there are none, or no more."""
    if batch.ended_at is None or batch.archived_at is not None:
        return None
    return f"/v1/batches/{batch.id}/results.jsonl"


def _last_change(batch: Batch) -> datetime:
    moments = (batch.ended_at, batch.finalizing_at, batch.cancelling_at, batch.in_progress_at)
    return max((moment for moment in moments if moment is not None), default=batch.created_at)
