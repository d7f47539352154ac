"""Hosts one model's backend: loads it, proves it with its canary, and serves its queue."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from contextlib import aclosing
from functools import partial

import uuid_utils
from redis.exceptions import ResponseError

from inference.admission import Admission
from inference.backends.port import Backend
from inference.catalogue import ModelEntry
from inference.engine.attempt import Attempt
from inference.engine.canary import run_canary
from inference.engine.heart import Heart
from inference.errors import ErrorCode, TandemError
from inference.events import Event, Failed, Finished, FinishReason, Usage
from inference.request import Lane
from inference.transport.connection import Unreachable, connect
from inference.transport.courier import Courier
from inference.transport.frames import CancelReason, EngineReport, EngineState, Frame, QueueEntry
from inference.transport.intake import Intake
from inference.transport.keys import Keys
from inference.transport.options import TransportOptions
from inference.transport.outbox import Outbox
from inference.transport.record_writer import RecordWriter
from inference.transport.records import Ending

logger = logging.getLogger(__name__)

# A failed engine stays for so long, so that its reason can be read, before it is started anew.
LINGER_S = 30.0
# How long running requests may take to end when the worker is told to stop.
DRAIN_S = 4.0
# How long the backend may take to free what it has.
STOP_S = 20.0

_BROKEN = Failed(code=ErrorCode.INTERNAL, message="the engine could not run this request")


class EngineHost:
    """One engine and its work. `run` returns when it was told to stop or cannot go on."""

    def __init__(
        self,
        entry: ModelEntry,
        backend: Backend,
        options: TransportOptions,
        stall_after_s: float,
    ) -> None:
        self.engine_id = str(uuid_utils.uuid7())
        self._entry = entry
        self._backend = backend
        self._options = options
        self._stall_after_s = stall_after_s
        self._keys = Keys(options.prefix)
        self._client = connect(options.redis_url)
        self._reader = connect(options.redis_url)
        self._admission = Admission(backend.capacity)
        self._intake = Intake(
            self._reader,
            self._client,
            self._keys,
            self.engine_id,
            self._keys.queue(entry.id, Lane.REALTIME),
        )
        self._counts = Intake(
            self._reader, self._client, self._keys, self.engine_id, self._keys.counts(entry.id)
        )
        courier = Courier(self._client)
        self._records = RecordWriter(courier, self._keys)
        self._outbox = Outbox(courier, self._keys, self._gateway_gone)
        # By request and attempt: an attempt may come while the one before it still ends here.
        self._running: dict[tuple[str, int], Attempt] = {}
        self._gateway_misses: dict[str, int] = {}
        self._state = EngineState.LOADING
        self._reason = ""
        self._started_at_s = time.time()
        self._progress = (0, time.monotonic())
        self._stop = asyncio.Event()
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
            in_flight=len(self._running),
            kv_use=stats.kv_use if stats else None,
            started_at_s=self._started_at_s,
            reason=self._reason,
        )

    def request_stop(self) -> None:
        """Ask `run` to drain and return. Call it on the host's own loop."""
        self._stop.set()

    async def run(self) -> bool:
        """Load, serve, and clean up. Returns whether it ended because it was told to."""
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
            await self._reader.aclose()
            await self._client.aclose()

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
            asyncio.create_task(self._outbox.run()),
            asyncio.create_task(self._records.run()),
            asyncio.create_task(self._take_for_ever()),
            asyncio.create_task(self._count_for_ever()),
            asyncio.create_task(self._cancel_for_ever()),
            asyncio.create_task(self._guard_for_ever()),
        ]
        self._change_state(EngineState.READY)
        logger.info("Serving %s as engine %s", self._entry.id, self.engine_id)
        stopping = asyncio.create_task(self._stop.wait())
        try:
            done, _ = await asyncio.wait([stopping, *workers], return_when=asyncio.FIRST_COMPLETED)
            for worker in done.difference({stopping}):
                # Only the guard returns, and only when the engine has failed.
                worker.result()
            # Nothing new is taken.
            workers[2].cancel()
            workers[3].cancel()
            if self._stop.is_set():
                self._change_state(EngineState.DRAINING)
                await self._drain(DRAIN_S)
            await self._drain(0)
            async with asyncio.timeout(2):
                await self._outbox.flushed()
                await self._records.flushed()
        except TimeoutError:
            logger.warning("Redis did not take the last frames; the gateways will notice")
        finally:
            for task in (stopping, *workers):
                task.cancel()
            await asyncio.gather(stopping, *workers, return_exceptions=True)
            await self._intake.close()

    async def _drain(self, patience_s: float) -> None:
        """Let running requests end; those that do not in time are handed back."""
        tasks = [running.task for running in self._running.values()]
        if tasks and patience_s:
            await asyncio.wait(tasks, timeout=patience_s)
        for running in list(self._running.values()):
            running.abort(
                Ending.ENGINE_LOST, Failed(code=ErrorCode.ENGINE_LOST, message="engine stopped")
            )
        if tasks := [running.task for running in self._running.values()]:
            await asyncio.wait(tasks, timeout=2)

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

    # Work.

    async def _take_for_ever(self) -> None:
        while True:
            await self._admission.acquire(Lane.REALTIME)
            taken = await self._intake.take()
            if taken is None or (taken[1].request.id, taken[1].attempt) in self._running:
                self._admission.release(Lane.REALTIME)
                if taken is not None:
                    await self._intake.drop(taken[0])
                continue
            entry_id, entry = taken
            for number in range(entry.attempt):
                if older := self._running.get((entry.request.id, number)):
                    older.cancel(CancelReason.SUPERSEDED)
            attempt = Attempt(entry)
            attempt.task = asyncio.create_task(self._run(entry_id, attempt))
            self._running[attempt.key] = attempt
            # A callback, because a task that is cancelled before its first step runs no code.
            attempt.task.add_done_callback(partial(self._ended, attempt))

    def _ended(self, attempt: Attempt, task: asyncio.Task[None]) -> None:
        del self._running[attempt.key]
        self._admission.release(Lane.REALTIME)
        if not task.cancelled() and (error := task.exception()):
            logger.error("Running request %s failed", attempt.entry.request.id, exc_info=error)
            self._say(attempt, _BROKEN)
        if record := attempt.record(self.engine_id):
            self._records.put(record)

    async def _run(self, entry_id: bytes, attempt: Attempt) -> None:
        entry = attempt.entry
        try:
            if not await self._intake.confirm(entry_id, entry):
                self._say(attempt, Failed(code=ErrorCode.ENGINE_LOST, message="not confirmed"))
                return
            attempt.confirmed()
            async with aclosing(self._backend.generate(entry.request, attempt.tally)) as events:
                async for event in events:
                    self._say(attempt, event)
        except asyncio.CancelledError:
            if attempt.farewell is not None:
                self._say(attempt, attempt.farewell)
            raise

    def _say(self, attempt: Attempt, event: Event) -> None:
        self._put(attempt.entry, attempt.next_seq(event), event)

    def _put(self, entry: QueueEntry, seq: int, event: Event) -> None:
        frame = Frame(entry.request.id, entry.attempt, self.engine_id, seq, event)
        self._outbox.put(entry.gateway_id, frame)

    async def _count_for_ever(self) -> None:
        """Count prompts' tokens, one after another and beside whatever is generated."""
        while True:
            if taken := await self._counts.take():
                counting = asyncio.create_task(self._count(*taken))
                await asyncio.wait([counting])
                if error := counting.exception():
                    logger.error("Counting tokens failed", exc_info=error)
                    self._put(taken[1], 1, _BROKEN)

    async def _count(self, entry_id: bytes, entry: QueueEntry) -> None:
        if not await self._counts.confirm(entry_id, entry):
            self._put(entry, 1, Failed(code=ErrorCode.ENGINE_LOST, message="not confirmed"))
            return
        try:
            tokens = await self._backend.count(entry.request)
        except TandemError as error:
            self._put(entry, 1, Failed(code=error.code, message=error.message))
            return
        usage = Usage(prompt_tokens=tokens, cached_tokens=0, output_tokens=0)
        self._put(entry, 1, Finished(reason=FinishReason.END, usage=usage))

    async def _cancel_for_ever(self) -> None:
        async for cancel in self._intake.cancels():
            if running := self._running.get((cancel.request_id, cancel.attempt)):
                running.cancel(cancel.reason)

    # Watching.

    async def _guard_for_ever(self) -> None:
        """Look after gateways and the engine; return when the engine has failed."""
        while True:
            await asyncio.sleep(self._options.heartbeat_s)
            if reason := self._backend.failure() or self._stalled():
                self._fail(reason)
                return
            try:
                await self._look_for_gateways()
            except (*Unreachable, ResponseError):
                # Nobody is judged while Redis is away.
                self._gateway_misses.clear()

    def _stalled(self) -> str | None:
        stats = self._backend.stats()
        now_s = time.monotonic()
        if stats.progress != self._progress[0] or not stats.running + stats.waiting:
            self._progress = (stats.progress, now_s)
        elif now_s - self._progress[1] > self._stall_after_s:
            return f"it made no progress for {self._stall_after_s:.0f} s with work to do"
        return None

    async def _look_for_gateways(self) -> None:
        gateways = sorted({running.entry.gateway_id for running in self._running.values()})
        if not gateways:
            return
        pipeline = self._client.pipeline(transaction=False)
        for gateway_id in gateways:
            pipeline.exists(self._keys.gateway(gateway_id))
        for gateway_id, alive in zip(gateways, await pipeline.execute(), strict=True):
            misses = 0 if alive else self._gateway_misses.get(gateway_id, 0) + 1
            self._gateway_misses[gateway_id] = misses
            if misses >= self._options.misses_until_dead:
                self._gateway_gone(gateway_id)

    def _gateway_gone(self, gateway_id: str) -> None:
        """Nobody listens any more: drop that gateway's requests."""
        self._gateway_misses.pop(gateway_id, None)
        for running in list(self._running.values()):
            if running.entry.gateway_id == gateway_id:
                farewell = Failed(code=ErrorCode.ENGINE_LOST, message="gateway lost")
                running.abort(Ending.GATEWAY_LOST, farewell)
