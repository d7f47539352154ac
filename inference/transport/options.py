"""What both ends of the transport need to know."""

from __future__ import annotations

import msgspec


class TransportOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where Redis is, how keys are named, and how fast silence counts as death.

    `enqueue_wait_s` is how long a new request waits for Redis to come back before it is refused.
    """

    redis_url: str
    prefix: str = "tandem"
    heartbeat_s: float = 0.5
    dead_after_s: float = 3.5
    enqueue_wait_s: float = 5.0
