"""The Celery worker that this process is, and how its own threads end it."""

from __future__ import annotations

import os
import threading

from celery.worker import state as worker_state

STOP_PATIENCE_S = 8.0
_EXIT_CODE = 1


def end_worker() -> None:
    """End this process with a non-zero status, so that whatever started it starts it anew."""
    # Read by the worker's main loop, which then ends the process with this status.
    vars(worker_state)["should_stop"] = _EXIT_CODE
    # The worker's main loop may be waiting for a broker that is away.
    timer = threading.Timer(STOP_PATIENCE_S, os._exit, [_EXIT_CODE])
    timer.daemon = True
    timer.start()
