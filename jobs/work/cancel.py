"""Cancels one piece of work."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from inference.errors import ErrorCode
from jobs.models import Work
from jobs.work import replies, rows
from jobs.work.ending import Ended, Outcome, keep_unserved
from jobs.work.rows import Row


def cancel(request_id: str) -> bool:
    """Cancel; False if there is no such work, or it has ended.

    Work that waits ends at once. An engine that runs it is told to stop as it renews its lease,
    within two seconds or so, and what it has done until then is billed; the stored response is
    CANCELLED at once either way.
    """
    now = timezone.now()
    with transaction.atomic():
        for row in rows.lock("id = %s AND state = 'pending'", [request_id]):
            keep_unserved([_cancelled(row)], now)
            return True
        for row in rows.lock("id = %s AND state = 'running'", [request_id]):
            Work.objects.filter(pk=row.id).update(cancel_requested=True)
            replies.end({row.id: replies.failed(ErrorCode.CANCELLED, "")}, now)
            return True
    return False


def _cancelled(row: Row) -> Ended:
    return Ended(row=row, outcome=Outcome.CANCELLED, code=ErrorCode.CANCELLED)
