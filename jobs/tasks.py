"""Celery's tasks: names and options; what they do lives in the modules they call."""

from __future__ import annotations

from celery import shared_task

from jobs import retention, seals, sweeps


@shared_task(name="jobs.sweep_transport", ignore_result=True, acks_late=True)
def sweep_transport() -> None:
    """Remove what dead engines left behind."""
    sweeps.sweep_transport()


@shared_task(name="jobs.seal_audit", ignore_result=True, acks_late=True)
def seal_audit() -> None:
    """Seal the rows of the audit trail that have settled."""
    seals.seal_settled(patience_s=30)


@shared_task(name="jobs.prune", ignore_result=True, acks_late=True)
def prune() -> None:
    """Remove what is over age, in slices."""
    if not retention.prune(patience_s=60):
        prune.delay()
