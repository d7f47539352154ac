"""Celery's broker URL, from the Redis URL that everything else uses."""

from __future__ import annotations


def broker_url(redis_url: str) -> str:
    """Return the URL as kombu spells it: Unix sockets have a scheme of their own there."""
    if redis_url.startswith("unix://"):
        return "redis+socket://" + redis_url.removeprefix("unix://").replace(
            "?db=", "?virtual_host="
        )
    return redis_url
