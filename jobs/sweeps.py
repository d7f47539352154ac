"""Regular cleaning. Each sweep is harmless when it runs twice, or not at all for a while."""

from __future__ import annotations

import logging

from django.utils import timezone

from inference.catalogue import load_catalogue
from inference.engine.options import transport_options
from inference.transport.connection import connect_sync
from inference.transport.keys import Keys
from inference.transport.sweep import sweep
from jobs import batches, responses
from jobs.work import leases, pending
from jobs.work.credit import Credit

logger = logging.getLogger(__name__)


def sweep_transport() -> None:
    """Remove from Redis what engines left that died without a word."""
    options = transport_options()
    models = [entry.id for entry in load_catalogue().entries]
    with connect_sync(options.redis_url) as client:
        swept = sweep(client, Keys(options.prefix), models)
    if swept:
        logger.info("Swept %d dead engines", swept)


def sweep_work() -> None:
    """Put back what dead engines had, end what is late, let the urgent rise, send what was lost."""
    options = transport_options()
    with connect_sync(options.redis_url) as client:
        credit = Credit(client, options.prefix)
        credit.settle(leases.reap(timezone.now()))
        late, settlements = pending.expire(timezone.now())
        credit.settle(settlements)
    risen = pending.rise(timezone.now())
    batches.sweep(timezone.now())
    lost = responses.sweep(timezone.now())
    if late or risen or lost:
        logger.info(
            "Ended %d pieces of work that were late and %d lost responses; %d pieces became urgent",
            late,
            lost,
            risen,
        )
