"""Celery's tasks: names and options; what they do lives in the modules they call."""

from __future__ import annotations

from celery import shared_task

from jobs import sweeps


@shared_task(name="jobs.sweep_transport", ignore_result=True, acks_late=True)
def sweep_transport() -> None:
    """Remove what dead engines left behind."""
    sweeps.sweep_transport()
