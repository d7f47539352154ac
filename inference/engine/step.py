"""The Celery bootstep that makes a worker an engine worker."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from typing import Any

import uvloop
from celery import bootsteps

from inference.backends.registry import build_backend
from inference.catalogue import ModelEntry, load_catalogue
from inference.collector import tune_collector
from inference.engine.guardian import start_guardian
from inference.engine.host import EngineHost
from inference.engine.options import EngineOptions
from inference.engine.work import WorkSource
from inference.worker import STOP_PATIENCE_S, end_worker

logger = logging.getLogger(__name__)


class EngineThread(threading.Thread):
    """Runs the engines of one worker on an event loop of their own.

    When an engine cannot go on, the whole process ends with a non-zero status, so that whatever
    started it starts it anew: an engine that died leaves nothing behind that could be trusted.
    """

    def __init__(self, options: EngineOptions) -> None:
        super().__init__(name="engines", daemon=True)
        self._options = options
        self._loop: asyncio.AbstractEventLoop | None = None
        self._hosts: list[EngineHost] = []

    def run(self) -> None:
        """Serve until stopped or failed."""
        orderly = False
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                self._loop = runner.get_loop()
                orderly = runner.run(self._serve())
        except Exception:
            logger.exception("The engine worker cannot go on")
        if not orderly:
            end_worker()

    async def _serve(self) -> bool:
        entries = await asyncio.to_thread(self._entries)
        self._hosts = [self._host(entry) for entry in entries]
        tune_collector()
        runs = [asyncio.create_task(host.run()) for host in self._hosts]
        await asyncio.wait(runs, return_when=asyncio.FIRST_COMPLETED)
        for host in self._hosts:
            host.request_stop()
        return all(await asyncio.gather(*runs))

    def _host(self, entry: ModelEntry) -> EngineHost:
        options = self._options

        def work(engine_id: str) -> WorkSource:
            return options.work_source(engine_id, entry.id, socket.gethostname())

        backend = build_backend(entry, options.models_dir)
        return EngineHost(entry, backend, options.transport, options.stall_after_s, work)

    def _entries(self) -> list[ModelEntry]:
        catalogue = load_catalogue()
        entries = []
        for model in self._options.models:
            entry = catalogue.find(model)
            if entry is None:
                raise LookupError(f"ENGINE_MODELS names '{model}', which is not in the catalogue")
            entries.append(entry)
        return entries

    def stop(self) -> None:
        """Drain and end the engines."""
        if self._loop is not None and self._loop.is_running():
            self._loop.call_soon_threadsafe(self._request_stop)
        self.join(timeout=STOP_PATIENCE_S)

    def _request_stop(self) -> None:
        for host in self._hosts:
            host.request_stop()


class EngineStep(bootsteps.StartStopStep):
    """Owns the engines of a worker whose ENGINE_MODELS names any."""

    requires = ("celery.worker.components:Pool",)

    def __init__(self, parent: Any, **kwargs: Any) -> None:
        super().__init__(parent, **kwargs)
        self._options = EngineOptions.from_settings()
        self.enabled = bool(self._options.models)
        self._thread: EngineThread | None = None

    def start(self, parent: Any) -> None:
        """Start loading; the worker takes tasks meanwhile."""
        start_guardian()
        self._thread = EngineThread(self._options)
        self._thread.start()

    def stop(self, parent: Any) -> None:
        """Drain on a warm shutdown."""
        if self._thread is not None:
            self._thread.stop()

    terminate = stop
