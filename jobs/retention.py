"""Retention: what requests said goes after `BODY_RETENTION_DAYS`, whole seals of rows later.

What teams can fetch for a while only goes with it (see `jobs.expiry` and `jobs.files`), and so do
the figures of minutes (`jobs.minutes`). The ledger, the usage by day and the seals themselves stay
for ever. Everything is removed in chunks, each a transaction of its own, oldest first: to stop
anywhere, to run twice and to run in several processes is harmless. docs/decisions/0010 says why no
table is partitioned.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import connection, transaction
from django.db.models import QuerySet, Sum
from django.utils import timezone

from jobs import expiry, files, minutes
from jobs.models import AuditSeal, RequestBody, RequestRecord
from jobs.seals import lock_chain, pruning_digest

logger = logging.getLogger(__name__)

_BODIES_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class Cutoffs:
    """Before when bodies, seals and minutes are removed."""

    bodies: datetime
    seals: datetime
    minutes: datetime

    @classmethod
    def at(cls, now: datetime) -> Cutoffs:
        """Take them from the settings. No body and no minute outlives its rows."""
        rows_days = settings.TANDEM.AUDIT_RETENTION_DAYS
        body_days = min(settings.TANDEM.BODY_RETENTION_DAYS, rows_days)
        seals = now - timedelta(days=rows_days)
        return cls(now - timedelta(days=body_days), seals, max(seals, now - minutes.KEPT))


def prune(patience_s: float) -> bool:
    """Remove what is over age; return whether all of it is gone after `patience_s`."""
    end_s = time.monotonic() + patience_s
    now = timezone.now()
    cutoffs = Cutoffs.at(now)
    for what, chunks in (
        ("bodies", prune_bodies(cutoffs.bodies)),
        ("rows of the audit trail", prune_seals(cutoffs.seals)),
        ("figures of minutes", minutes.prune(cutoffs.minutes)),
        ("rows of batches", expiry.prune_batches(now)),
        ("responses", expiry.prune_responses(now)),
        ("files", files.prune_expired(now)),
    ):
        removed = 0
        for count in chunks:
            removed += count
            if time.monotonic() > end_s:
                logger.info("Pruned %d %s; there are more", removed, what)
                return False
        if removed:
            logger.info("Pruned %d %s", removed, what)
    return True


def over_age(cutoffs: Cutoffs) -> tuple[int, int]:
    """Return how many bodies and rows there are to remove."""
    rows = _seals_before(cutoffs.seals).aggregate(rows=Sum("rows"))["rows"]
    return _bodies_before(cutoffs.bodies).count(), rows or 0


def prune_bodies(before: datetime) -> Iterator[int]:
    """Remove bodies, a chunk with each step; yield how many it had."""
    oldest = _bodies_before(before).order_by("created_at").values("record_id")[:_BODIES_AT_ONCE]
    while count := RequestBody.objects.filter(record_id__in=oldest).delete()[0]:
        yield count


def prune_seals(before: datetime) -> Iterator[int]:
    """Remove the rows of the oldest seals, a seal with each step; yield how many it had.

    A seal is younger than every row under it, so a seal before the cut-off has no younger row.
    """
    while (count := _prune_seal(before)) is not None:
        yield count


def _prune_seal(before: datetime) -> int | None:
    with transaction.atomic():
        lock_chain()
        seal = _seals_before(before).order_by("number").first()
        if seal is None:
            return None
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL tandem.pruning = 'on'")
        count, _ = RequestRecord.objects.filter(seal=seal).delete()
        if count != seal.rows:
            logger.warning("Seal %d had %d rows, not %d", seal.number, count, seal.rows)
        seal.pruned_at = timezone.now()
        seal.pruning_digest = pruning_digest(seal, seal.pruned_at, settings.SECRET_KEY)
        seal.leaves = b""
        seal.save(update_fields=["pruned_at", "pruning_digest", "leaves"])
    return count


def _bodies_before(moment: datetime) -> QuerySet[RequestBody]:
    return RequestBody.objects.filter(created_at__lt=moment)


def _seals_before(moment: datetime) -> QuerySet[AuditSeal]:
    return AuditSeal.objects.filter(pruned_at__isnull=True, created_at__lt=moment)
