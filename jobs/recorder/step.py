"""The Celery bootstep that records in a worker without engines: the clerk."""

from __future__ import annotations

import logging
import threading
from typing import Any

from celery import bootsteps
from django.conf import settings

from inference.engine.options import transport_options
from inference.transport.connection import connect_sync
from inference.transport.keys import Keys
from inference.worker import STOP_PATIENCE_S, end_worker
from jobs.quota.client import Settler
from jobs.recorder.drain import Recorder
from jobs.recorder.stream import RecordStream

logger = logging.getLogger(__name__)


class RecorderThread(threading.Thread):
    """Records until stopped. When it cannot go on, the whole process ends, to be started anew."""

    def __init__(self) -> None:
        super().__init__(name="recorder", daemon=True)
        self._told_to_stop = threading.Event()

    def run(self) -> None:
        """Record, as one of several that are ready to."""
        options = transport_options()
        orderly = False
        try:
            with connect_sync(options.redis_url) as client:
                recorder = Recorder(
                    RecordStream(client, Keys(options.prefix)),
                    Settler(client, options.prefix),
                    settings.TANDEM.SETTLE_AFTER_S,
                )
                recorder.run(self._told_to_stop)
            orderly = True
        finally:
            if not orderly:
                logger.critical("The recorder cannot go on")
                end_worker()

    def stop(self) -> None:
        """Finish the batch that is being written."""
        self._told_to_stop.set()
        self.join(timeout=STOP_PATIENCE_S)


class RecorderStep(bootsteps.StartStopStep):
    """Owns the recorder of a worker whose ENGINE_MODELS is empty."""

    requires = ("celery.worker.components:Pool",)

    def __init__(self, parent: Any, **kwargs: Any) -> None:
        super().__init__(parent, **kwargs)
        self.enabled = not settings.TANDEM.ENGINE_MODELS
        self._thread: RecorderThread | None = None

    def start(self, parent: Any) -> None:
        """Begin, or wait for the one that records to end."""
        self._thread = RecorderThread()
        self._thread.start()

    def stop(self, parent: Any) -> None:
        """End on a warm shutdown."""
        if self._thread is not None:
            self._thread.stop()

    terminate = stop
