"""Celery's tasks of the gateway's own: names and options; what they do lives elsewhere."""

from __future__ import annotations

from uuid import UUID

from celery import shared_task

from gateway.batches import lifecycle


@shared_task(name="gateway.validate_batch", ignore_result=True, acks_late=True)
def validate_batch(batch_id: str) -> None:
    """Make rows of a batch's input file."""
    lifecycle.validate_batch(UUID(batch_id))


@shared_task(name="gateway.finalize_batch", ignore_result=True, acks_late=True)
def finalize_batch(batch_id: str) -> None:
    """Write a batch's results and end it."""
    lifecycle.finalize_batch(UUID(batch_id))
