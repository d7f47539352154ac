"""An engine's heartbeat, written by a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from redis.exceptions import RedisError

from inference.transport.connection import connect_sync
from inference.transport.frames import EngineReport, encode
from inference.transport.keys import Keys
from inference.transport.options import TransportOptions

logger = logging.getLogger(__name__)


class Heart(threading.Thread):
    """Writes `report()` to Redis every `heartbeat_s`.

    A thread, because loading a model or tokenizing a huge prompt can hold the event loop for
    longer than a silent engine is given: being busy is not being dead. Whether the engine makes
    progress is the host's business.
    """

    def __init__(self, options: TransportOptions, report: Callable[[], EngineReport]) -> None:
        super().__init__(name="heart", daemon=True)
        self._options = options
        self._keys = Keys(options.prefix)
        self._client = connect_sync(options.redis_url)
        self._report = report
        self._stopping = threading.Event()
        self._beat_now = threading.Event()

    def run(self) -> None:
        """Beat until stopped, then take the heartbeat back."""
        while not self._stopping.is_set():
            self._beat_now.clear()
            try:
                self._beat()
            except (RedisError, OSError):
                logger.warning("Redis is not reachable; the heartbeat goes on when it is")
            self._beat_now.wait(self._options.heartbeat_s)
        try:
            report = self._report()
            self._client.delete(self._keys.engine(report.engine_id))
            self._client.srem(self._keys.engines, report.engine_id)
        except (RedisError, OSError):
            logger.info("Redis is gone; the heartbeat expires by itself")
        self._client.close()

    def _beat(self) -> None:
        report = self._report()
        pipeline = self._client.pipeline(transaction=False)
        pipeline.sadd(self._keys.engines, report.engine_id)
        pipeline.set(
            self._keys.engine(report.engine_id),
            encode(report),
            px=self._options.heartbeat_ttl_ms,
        )
        pipeline.execute()

    def beat_now(self) -> None:
        """Let others see a change of state at once."""
        self._beat_now.set()

    def stop(self) -> None:
        """End the thread and the heartbeat."""
        self._stopping.set()
        self._beat_now.set()
        self.join(timeout=5)
