"""What there is of work and batches right now, for the metrics.

By counts that batches keep, and indexes of what runs or is open: however many rows wait or have
ended, they are not read.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import NamedTuple

from django.db.models import Count, F, Min

from inference.request import Lane
from jobs.models import Batch, StoredResponse, Work


class Backlog(NamedTuple):
    """Work by model and lane, and open batches by form and status.

    `oldest` is when the oldest work was made that waits. The model of rows that wait is their
    batch's: empty, where a batch is for several.
    """

    pending: Counter[tuple[str, str]]
    running: Counter[tuple[str, str]]
    oldest: dict[tuple[str, str], datetime]
    batches: Counter[tuple[str, str]]


def read_backlog() -> Backlog:
    """Look into the database."""
    found = Backlog(Counter(), Counter(), {}, Counter())
    running = Work.objects.filter(state=Work.State.RUNNING).order_by()
    running_of: Counter[object] = Counter()
    for model, lane, batch_id, count in running.values_list("model", "lane", "batch_id").annotate(
        count=Count("*")
    ):
        found.running[model, lane] += count
        running_of[batch_id] += count
    ended = F("completed") + F("failed") + F("cancelled") + F("expired")
    for batch_id, form, status, model, created_at, left in Batch.objects.filter(
        status__in=Batch.OPEN
    ).values_list("pk", "form", "status", "model", "created_at", F("total") - ended):
        found.batches[form, status] += 1
        _wait(found, (model, Lane.BATCH), left - running_of[batch_id], created_at)
    queued = StoredResponse.objects.filter(
        status=StoredResponse.Status.QUEUED, background=True
    ).order_by()
    for model, count, oldest in queued.values_list("model").annotate(
        count=Count("*"), oldest=Min("created_at")
    ):
        _wait(found, (model, Lane.BACKGROUND), count, oldest)
    return found


def _wait(found: Backlog, group: tuple[str, str], count: int, since: datetime) -> None:
    # What has been taken or has ended between two looks may be missing in the second.
    if count > 0:
        found.pending[group] += count
        found.oldest[group] = min(since, found.oldest.get(group, since))
