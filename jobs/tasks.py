"""Celery's tasks: names and options; what they do lives in the modules they call."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from inference.engine import drain
from jobs import files, retention, seals, sweeps


@shared_task(name="jobs.sweep_transport", ignore_result=True, acks_late=True)
def sweep_transport() -> None:
    """Remove what dead engines left behind."""
    sweeps.sweep_transport()


@shared_task(name="jobs.wake_engines", ignore_result=True)
def wake_engines(model: str) -> None:
    """Let the engines of this worker look for work at once. Runs in engine workers only."""
    drain.wake(model)


@shared_task(name="jobs.sweep_work", ignore_result=True, acks_late=True)
def sweep_work() -> None:
    """Move on what has come to a halt: work, batches and stored responses."""
    sweeps.sweep_work()


@shared_task(name="jobs.seal_audit", ignore_result=True, acks_late=True)
def seal_audit() -> None:
    """Seal the rows of the audit trail that have settled."""
    seals.seal_settled(patience_s=30)


@shared_task(name="jobs.prune", ignore_result=True, acks_late=True)
def prune() -> None:
    """Remove what is over age, in slices."""
    if retention.prune(patience_s=60):
        files.sweep_orphans(timezone.now())
    else:
        prune.delay()
