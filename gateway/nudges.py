"""Tells gateways of a change in the database, once it is committed."""

from __future__ import annotations

from functools import partial

from django.conf import settings
from django.db import transaction

from inference.transport.nudge import Topic, nudge


def nudge_on_commit(topic: Topic) -> None:
    """Make every gateway load this topic again as soon as the present transaction is committed."""
    transaction.on_commit(partial(nudge, settings.REDIS_URL, settings.TANDEM.REDIS_PREFIX, topic))
