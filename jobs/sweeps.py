"""Regular cleaning. Each sweep is harmless when it runs twice, or not at all for a while."""

from __future__ import annotations

import logging

from inference.catalogue import load_catalogue
from inference.engine.options import transport_options
from inference.transport.connection import connect_sync
from inference.transport.keys import Keys
from inference.transport.sweep import sweep

logger = logging.getLogger(__name__)


def sweep_transport() -> None:
    """Remove from Redis what engines left that died without a word."""
    options = transport_options()
    models = [entry.id for entry in load_catalogue().entries]
    with connect_sync(options.redis_url) as client:
        swept = sweep(client, Keys(options.prefix), models)
    if swept:
        logger.info("Swept %d dead engines", swept)
