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

    @property
    def heartbeat_ttl_ms(self) -> int:
        """How long a heartbeat lives in Redis.

        Shorter than `dead_after_s`: the rest of that time is spent looking again, so that a Redis
        that comes back from a restart without the key is not mistaken for a death.
        """
        return round(self.dead_after_s * 500)

    @property
    def misses_until_dead(self) -> int:
        """How many looks in a row, one each `heartbeat_s`, must find no heartbeat.

        Between two looks a heart that only lost its Redis need not have beaten yet.
        """
        return max(3, round(self.dead_after_s * 0.4 / self.heartbeat_s))
