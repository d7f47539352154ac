"""The Celery bootstep that makes a worker an engine worker."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import uvloop
from celery import bootsteps

from inference.backends.port import Backend
from inference.backends.registry import build_backend
from inference.catalogue import ModelEntry, load_catalogue, reload_entry
from inference.collector import tune_collector
from inference.engine.guardian import start_guardian
from inference.engine.host import EngineHost
from inference.engine.options import EngineOptions
from inference.engine.work import WorkSource
from inference.worker import STOP_PATIENCE_S, end_worker

logger = logging.getLogger(__name__)

# MCP servers are asked to end; the guardian ends what is left when the worker has.
_LEAVE_SERVERS_S = 3.0

WithTools = Callable[[ModelEntry, Backend], Backend]


class EngineThread(threading.Thread):
    """Runs the engines of one worker on an event loop of their own.

    When an engine cannot go on, the whole process ends with a non-zero status, so that whatever
    started it starts it anew: an engine that died leaves nothing behind that could be trusted.
    """

    def __init__(self, options: EngineOptions) -> None:
        super().__init__(name="engines", daemon=True)
        self._options = options
        self._loop: asyncio.AbstractEventLoop | None = None
        self._hosts: dict[str, EngineHost] = {}
        self._stopping = False

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
        # Here, because the SDK is large and a worker without engines does without it.
        from inference.mcp.loop import ToolLoop
        from inference.mcp.pool import McpPool

        entries = await asyncio.to_thread(self._entries)
        pool = McpPool(self._options.mcp_hosts_allowed)
        make_credit = self._options.make_credit
        with_tools = partial(ToolLoop, pool, credit=make_credit and make_credit())
        hosts = [self._host(entry, with_tools) for entry in entries]
        tune_collector()
        runs = [
            asyncio.create_task(self._run(entry, host, with_tools))
            for entry, host in zip(entries, hosts, strict=True)
        ]
        try:
            await asyncio.wait(runs, return_when=asyncio.FIRST_COMPLETED)
            self._request_stop()
            return all(await asyncio.gather(*runs))
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LEAVE_SERVERS_S):
                    await pool.close()

    async def _run(self, entry: ModelEntry, host: EngineHost, with_tools: WithTools) -> bool:
        """Run a model's engine. Return whether it ended because it was told to.

        An upstream's has nothing in this process that could be broken: it is started anew right
        here, and the others that the worker hosts go on.
        """
        while True:
            orderly = await host.run()
            if orderly or entry.upstream is None:
                return orderly
            entry = await asyncio.to_thread(reload_entry, entry)
            if self._stopping:
                return True
            host = self._host(entry, with_tools)

    def _host(self, entry: ModelEntry, with_tools: WithTools) -> EngineHost:
        options = self._options

        def work(engine_id: str) -> WorkSource:
            return options.work_source(engine_id, entry.id, socket.gethostname())

        backend = with_tools(entry, build_backend(entry, options.models_dir))
        host = EngineHost(entry, backend, options.transport, options.stall_after_s, work)
        self._hosts[entry.id] = host
        return host

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
        self._stopping = True
        for host in self._hosts.values():
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
