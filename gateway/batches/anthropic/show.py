"""A batch as Anthropic's clients see it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from gateway.request_ids import parse_id
from jobs.models import Batch

_PREFIX = "msgbatch_"
_ENDED = {
    Batch.Status.COMPLETED,
    Batch.Status.FAILED,
    Batch.Status.EXPIRED,
    Batch.Status.CANCELLED,
}


def batch_name(batch_id: UUID) -> str:
    """Return the id as clients see it."""
    return f"{_PREFIX}{batch_id}"


def parse_batch_name(text: str) -> UUID | None:
    """Return the id in what a client sent; None if it cannot be a Message Batch's."""
    return parse_id(text, _PREFIX)


def has_ended(batch: Batch) -> bool:
    """Whether nothing of it will change any more."""
    return batch.status in _ENDED


def show_batch(batch: Batch) -> dict[str, Any]:
    """Return the MessageBatch object. Until the end all rows count as being processed."""
    ended = has_ended(batch)
    name = batch_name(batch.id)
    stopping = "canceling" if batch.cancelling_at is not None else "in_progress"
    return {
        "id": name,
        "type": "message_batch",
        "processing_status": "ended" if ended else stopping,
        "request_counts": {
            "processing": 0 if ended else batch.total,
            "succeeded": batch.completed if ended else 0,
            "errored": batch.failed if ended else 0,
            "canceled": batch.cancelled if ended else 0,
            "expired": batch.expired if ended else 0,
        },
        "created_at": batch.created_at,
        "expires_at": batch.expires_at,
        "ended_at": batch.ended_at,
        "cancel_initiated_at": batch.cancelling_at,
        "archived_at": batch.archived_at,
        # A path: clients send their key to whatever host an absolute URL names.
        "results_url": f"/v1/messages/batches/{name}/results"
        if ended and batch.archived_at is None
        else None,
    }
