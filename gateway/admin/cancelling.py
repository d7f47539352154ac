"""Cancelling what may take long, and whether that came in time."""

from __future__ import annotations

from jobs import batches, responses
from jobs.models import Batch, StoredResponse


def cancel_batch(batch: Batch) -> bool:
    """Begin no more of a batch's rows; False if it was over, or had been cancelled, before.

    The batch that was passed has its counts as they are then.
    """
    if batch.cancelling_at is not None:
        return False
    batches.cancel(batch.pk)
    batch.refresh_from_db()
    return batch.cancelling_at is not None


def cancel_response(response: StoredResponse) -> bool:
    """Break off what runs in the background; False for what does not, or does not any more."""
    if response.status == StoredResponse.Status.CANCELLED:
        return False
    now = responses.cancel(str(response.pk), response.team_id)
    return now is not None and now.status == StoredResponse.Status.CANCELLED
