"""What engines say of themselves, for pages that ask once; `gateway.live` watches them."""

from __future__ import annotations

from django.conf import settings

from inference.transport.connection import Unreachable, connect_sync
from inference.transport.frames import EngineReport
from inference.transport.keys import Keys
from inference.transport.orders import list_engines


def read_reports() -> list[EngineReport] | None:
    """Return the last report of each engine that is alive; None if Redis does not answer."""
    with connect_sync(settings.REDIS_URL) as client:
        try:
            return list_engines(client, Keys(settings.TANDEM.REDIS_PREFIX))
        except Unreachable:
            return None
