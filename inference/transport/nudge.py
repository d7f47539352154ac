"""A word to every gateway that something it keeps in memory has changed."""

from __future__ import annotations

import logging
from enum import StrEnum

from inference.transport.connection import Unreachable, connect_sync
from inference.transport.keys import Keys

logger = logging.getLogger(__name__)


class Topic(StrEnum):
    """What has changed."""

    KEYS = "keys"
    CATALOGUE = "catalogue"
    PRICES = "prices"


def nudge(redis_url: str, prefix: str, topic: Topic) -> None:
    """Publish the topic. Without Redis this only logs: gateways also look by themselves."""
    with connect_sync(redis_url) as client:
        try:
            client.publish(Keys(prefix).nudges, topic)
        except Unreachable as error:
            logger.warning("gateways learn of the new %s a few seconds later: %s", topic, error)
