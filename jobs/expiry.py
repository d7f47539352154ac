"""What is kept for a while only: the results of batches, and stored responses.

Everything is removed in chunks, each a transaction of its own: to stop anywhere, to run twice and
to run in several processes is harmless. The trail and the ledger have retention of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from jobs.models import Batch, StoredResponse, Work

RESULTS_KEPT = timedelta(days=30)
"""After a batch has ended. The batch itself stays in its team's list."""

_AT_ONCE = 1_000


def prune_batches(now: datetime) -> Iterator[int]:
    """Remove the rows of batches that ended long ago, a chunk with each step; yield how many."""
    old = Batch.objects.filter(ended_at__lte=now - RESULTS_KEPT, archived_at__isnull=True)
    while (batch := old.order_by("ended_at").first()) is not None:
        chunk = Work.objects.filter(batch=batch).order_by("line").values("pk")[:_AT_ONCE]
        while count := Work.objects.filter(pk__in=chunk).delete()[0]:
            yield count
        batch.archived_at = now
        batch.save(update_fields=["archived_at"])


def prune_responses(now: datetime) -> Iterator[int]:
    """Remove stored responses whose time is over, a chunk with each step; yield how many."""
    over = StoredResponse.objects.filter(expires_at__lte=now).exclude(
        status__in=StoredResponse.OPEN
    )
    chunk = over.order_by("expires_at").values("pk")[:_AT_ONCE]
    while count := StoredResponse.objects.filter(pk__in=chunk).delete()[0]:
        yield count
