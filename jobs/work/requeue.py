"""Lets a piece of work be taken anew, when an operator wants it."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from inference.engine.options import transport_options
from inference.transport.connection import connect_sync
from jobs.models import Work
from jobs.work import leases, rows
from jobs.work.credit import Credit
from jobs.work.enqueue import wake_on_commit


def requeue(request_id: str) -> bool:
    """Let the next engine that has room take it; False if it has ended, or there is none.

    From an engine that runs it, it is taken: that engine breaks it off as it renews its lease,
    within two seconds or so, and no attempt counts. What was to wait for its next try waits no
    more. What is to be cancelled ends instead.
    """
    with transaction.atomic():
        running = rows.lock("id = %s AND state = 'running'", [request_id])
        untold = leases.put_back(running, timezone.now(), leases.Back.UNTOUCHED)
        waits = Work.objects.filter(pk=request_id, state=Work.State.PENDING)
        models = list(waits.values_list("model", flat=True))
        waits.update(not_before=None)
        wake_on_commit(models)
    if untold:
        options = transport_options()
        with connect_sync(options.redis_url) as client:
            Credit(client, options.prefix).settle(untold)
    return bool(running or models)
