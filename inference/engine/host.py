"""Hosts one model's backend: loads it, proves it with its canary, and lets it serve."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable

import uuid_utils

from inference.admission import Admission
from inference.backends.port import Backend, BackendStats
from inference.catalogue import ModelEntry
from inference.engine.canary import run_canary
from inference.engine.drain import Drain, Logs
from inference.engine.heart import Heart
from inference.engine.link import Link
from inference.engine.realtime import Realtime
from inference.engine.work import WorkSource
from inference.errors import TandemError
from inference.request import Lane
from inference.transport.figures import EngineFigures
from inference.transport.frames import EngineReport, EngineState, Order
from inference.transport.keys import QUEUED_LANES
from inference.transport.options import TransportOptions

logger = logging.getLogger(__name__)

# A failed engine stays for so long, so that its reason can be read, before it is started anew.
LINGER_S = 30.0
# How long running requests may take to end when the worker is told to stop.
DRAIN_S = 4.0
# How long the backend may take to free what it has.
STOP_S = 20.0
# How long it may take to tell Redis and the database the last words.
_LAST_WORDS_S = 2.0

_WORK_LANES = tuple(lane for lane in Lane if lane not in QUEUED_LANES)

# Makes an engine's source of work, of the engine's id.
Work = Callable[[str], WorkSource]


class EngineHost:
    """One engine and its work. `run` returns when it was told to stop or cannot go on.

    Without `work` it runs nothing but what gateways wait for.
    """

    def __init__(
        self,
        entry: ModelEntry,
        backend: Backend,
        options: TransportOptions,
        stall_after_s: float,
        work: Work | None = None,
    ) -> None:
        self.engine_id = str(uuid_utils.uuid7())
        self._entry = entry
        self._backend = backend
        self._options = options
        self._stall_after_s = stall_after_s
        self._link = Link(options)
        self._admission = Admission(backend.capacity)
        self._realtime = Realtime(
            self.engine_id,
            entry.id,
            backend,
            self._admission,
            self._link,
            options.misses_until_dead,
        )
        self._work = work
        self._drain: Drain | None = None
        self._state = EngineState.LOADING
        self._reason = ""
        self._started_at_s = time.time()
        self._progress = (0, time.monotonic())
        self._kept_permits = self._admission.kept
        self._stop = asyncio.Event()
        self._reload = asyncio.Event()
        self._realtime.on_order = self.order
        self._heart = Heart(options, self.report)

    def report(self) -> EngineReport:
        """The heartbeat's content. Called from the heart's thread; reads only plain values."""
        stats = self._backend.stats() if self._state is EngineState.READY else None
        return EngineReport(
            engine_id=self.engine_id,
            model=self._entry.id,
            host=socket.gethostname(),
            pid=os.getpid(),
            state=self._state,
            capacity=self._backend.capacity,
            in_flight=self._realtime.in_flight,
            work_in_flight=self._drain.in_flight if self._drain else 0,
            kv_use=stats.kv_use if stats else None,
            started_at_s=self._started_at_s,
            reason=self._reason,
            figures=self._figures(stats),
        )

    def _figures(self, stats: BackendStats | None) -> EngineFigures:
        lanes = self._realtime.meters.lanes(QUEUED_LANES, self._admission)
        if drain := self._drain:
            lanes |= drain.meters.lanes(_WORK_LANES, self._admission)
        return EngineFigures(
            lanes=lanes,
            kept_permits=self._kept_permits,
            preemptions=drain.preemptions if drain else 0,
            wasted_tokens=drain.wasted_tokens if drain else 0,
            attained=self._realtime.meters.attained,
            prefix_queries=stats.prefix_queries if stats else None,
            prefix_hits=stats.prefix_hits if stats else None,
            pace=stats.pace if stats else None,
        )

    def request_stop(self) -> None:
        """Ask `run` to drain and return. Call it on the host's own loop."""
        self._stop.set()

    def order(self, order: Order) -> None:
        """Do what an operator says while the engine serves. Call it on the host's own loop.

        A drained engine stays as it is until it is told to resume or to reload.
        """
        if self._state is EngineState.FAILED or self._stop.is_set() or self._reload.is_set():
            return
        logger.info("Engine %s is told to %s", self.engine_id, order)
        parts: list[Realtime | Drain] = [self._realtime]
        if self._drain:
            parts.append(self._drain)
        for part in parts:
            if order is Order.RESUME:
                part.resume()
            else:
                part.pause()
        if order is Order.RELOAD:
            self._reload.set()
        self._change_state(EngineState.READY if order is Order.RESUME else EngineState.DRAINING)

    async def run(self) -> bool:
        """Load, serve, and clean up. Returns whether it ended because it was told to.

        One that was told to reload ends, too, and is to be started anew like one that failed.
        """
        self._heart.start()
        try:
            reason = await self._load()
            if reason is None:
                await self._serve()
            else:
                self._fail(reason)
                await self._linger()
            return self._stop.is_set()
        finally:
            await self._stop_backend()
            await asyncio.to_thread(self._heart.stop)
            await self._link.close()

    async def _stop_backend(self) -> None:
        try:
            async with asyncio.timeout(STOP_S):
                await self._backend.stop()
        except TimeoutError:
            # Nothing but the end of the process ends it; the guardian sees to its children.
            logger.critical("Engine %s does not stop", self.engine_id)
            os._exit(1)

    async def _load(self) -> str | None:
        """Start the backend; return why it cannot serve, or None."""
        logger.info("Loading %s", self._entry.id)
        loading = asyncio.ensure_future(self._load_backend())
        stopping = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait([loading, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not loading.done():
            loading.cancel()
            await asyncio.wait([loading])
            return "it was told to stop"
        return loading.result()

    async def _load_backend(self) -> str | None:
        try:
            await self._backend.start()
        except TandemError as error:
            return error.message
        return await run_canary(self._backend, self._entry)

    async def _serve(self) -> None:
        workers = [
            asyncio.create_task(self._guard_for_ever()),
            asyncio.create_task(self._realtime.run()),
        ]
        drain = self._drain = self._make_drain()
        if drain:
            self._admission.reclaim = drain.preempt
        draining = [asyncio.create_task(drain.run())] if drain else []
        self._change_state(EngineState.READY)
        logger.info("Serving %s as engine %s", self._entry.id, self.engine_id)
        stopping = asyncio.create_task(self._stop.wait())
        reloading = asyncio.create_task(self._until_reload())
        everything = [stopping, reloading, *draining, *workers]
        try:
            done, _ = await asyncio.wait(everything, return_when=asyncio.FIRST_COMPLETED)
            for worker in done.difference({stopping, reloading}):
                # Only the guard returns, and only when the engine has failed.
                worker.result()
            await self._finish(draining)
        finally:
            for task in everything:
                task.cancel()
            await asyncio.gather(*everything, return_exceptions=True)
            await self._realtime.close()

    async def _until_reload(self) -> None:
        """Return when an operator wants it and no realtime request runs any more."""
        await self._reload.wait()
        while tasks := self._realtime.tasks:
            await asyncio.wait(tasks)

    def _make_drain(self) -> Drain | None:
        if self._work is None:
            return None
        logs = Logs(self._link.courier, self._link.keys)
        source = self._work(self.engine_id)
        return Drain(self._entry.id, self._backend, self._admission, source, logs)

    async def _finish(self, draining: list[asyncio.Task[None]]) -> None:
        """Take nothing new, let what runs end or stop it, and say the last words."""
        orderly = self._state is not EngineState.FAILED
        self._realtime.stop_taking()
        if self._drain:
            self._drain.stop_taking()
        if orderly:
            self._change_state(EngineState.DRAINING)
            await self._settle(DRAIN_S)
        self._realtime.hand_back()
        if self._drain:
            self._drain.break_off(engine_died=not orderly)
        await self._settle(_LAST_WORDS_S)
        for task in draining:
            task.cancel()
        await asyncio.gather(*draining, return_exceptions=True)
        try:
            async with asyncio.timeout(_LAST_WORDS_S):
                closing = [self._drain.close()] if self._drain else []
                await asyncio.gather(self._realtime.flushed(), *closing)
        except TimeoutError:
            logger.warning("Not everybody was told the last words; they will notice by themselves")

    async def _settle(self, patience_s: float) -> None:
        """Wait until nothing runs any more, but no longer than that."""
        work = self._drain.tasks if self._drain else []
        if tasks := [*self._realtime.tasks, *work]:
            await asyncio.wait(tasks, timeout=patience_s)

    async def _linger(self) -> None:
        try:
            async with asyncio.timeout(LINGER_S):
                await self._stop.wait()
        except TimeoutError:
            logger.info("Giving up on engine %s, so that it is started anew", self.engine_id)

    def _change_state(self, state: EngineState) -> None:
        self._state = state
        self._heart.beat_now()

    def _fail(self, reason: str) -> None:
        logger.error("Engine %s of %s does not serve: %s", self.engine_id, self._entry.id, reason)
        self._reason = reason
        self._change_state(EngineState.FAILED)

    # Watching.

    async def _guard_for_ever(self) -> None:
        """Look after gateways and the engine; return when the engine has failed."""
        while True:
            await asyncio.sleep(self._options.heartbeat_s)
            if reason := self._backend.failure() or self._stalled():
                self._fail(reason)
                return
            self._admission.tick()
            self._kept_permits = self._admission.kept
            await self._realtime.look_for_gateways()

    def _stalled(self) -> str | None:
        stats = self._backend.stats()
        now_s = time.monotonic()
        if stats.progress != self._progress[0] or not stats.running + stats.waiting:
            self._progress = (stats.progress, now_s)
        elif now_s - self._progress[1] > self._stall_after_s:
            return f"it made no progress for {self._stall_after_s:.0f} s with work to do"
        return None
