"""Runs what gateways wait for: takes requests from the model's queues and sends events back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from functools import partial

from redis.exceptions import ResponseError

from inference.admission import Admission
from inference.backends.port import Backend
from inference.engine.attempt import Attempt
from inference.engine.counting import Counting
from inference.engine.link import Link
from inference.engine.meters import Meters
from inference.errors import ErrorCode
from inference.events import Event, Failed
from inference.request import Lane
from inference.transport.connection import Unreachable
from inference.transport.frames import Cancel, CancelReason, Frame, Order, QueueEntry
from inference.transport.intake import Intake
from inference.transport.keys import QUEUED_LANES
from inference.transport.outbox import Outbox
from inference.transport.record_writer import RecordWriter
from inference.transport.records import Ending
from inference.transport.streams import added_at_s

logger = logging.getLogger(__name__)

_BROKEN = Failed(code=ErrorCode.INTERNAL, message="the engine could not run this request")


class Realtime:
    """The requests of one engine that gateways wait for, in the lanes that wait in Redis.

    A gateway that is not seen for `misses_until_dead` looks is gone.
    """

    def __init__(
        self,
        engine_id: str,
        model: str,
        backend: Backend,
        admission: Admission,
        link: Link,
        misses_until_dead: int,
    ) -> None:
        self._engine_id = engine_id
        self._backend = backend
        self._admission = admission
        self._client, self._keys = link.client, link.keys
        self._misses_until_dead = misses_until_dead

        def intake(queue: str) -> Intake:
            return Intake(link.reader, link.client, link.courier, link.keys, engine_id, queue)

        self._intakes = {lane: intake(link.keys.queue(model, lane)) for lane in QUEUED_LANES}
        self._counts = intake(link.keys.counts(model))
        self._counting = Counting(backend, self._counts, self._put)
        self.meters = Meters()
        self._records = RecordWriter(link.courier, link.keys)
        self._outbox = Outbox(link.courier, link.keys, self._gateway_gone)
        # By request and attempt: an attempt may come while the one before it still ends here.
        self._running: dict[tuple[str, int], Attempt] = {}
        self._gateway_misses: dict[str, int] = {}
        self._taking: list[asyncio.Task[None]] = []
        self._open = asyncio.Event()
        self._open.set()
        # What operators tell this engine goes there.
        self.on_order: Callable[[Order], None] = lambda order: None

    @property
    def in_flight(self) -> int:
        """How many requests run."""
        return len(self._running)

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """What runs them."""
        return [running.task for running in self._running.values()]

    async def run(self) -> None:
        """Take requests and cancels, and write what comes of them, for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._outbox.run())
            group.create_task(self._records.run())
            group.create_task(self._listen_for_ever())
            self._taking = [
                *(group.create_task(self._take_for_ever(lane)) for lane in QUEUED_LANES),
                group.create_task(self._counting.run()),
            ]

    def stop_taking(self) -> None:
        """Take nothing more."""
        for task in self._taking:
            task.cancel()

    def pause(self) -> None:
        """Take nothing more until `resume`, but for what may come in this very moment."""
        self._open.clear()

    def resume(self) -> None:
        """Take requests again."""
        self._open.set()

    def hand_back(self) -> None:
        """Stop all that runs; its gateways look for another engine."""
        for running in list(self._running.values()):
            running.abort(
                Ending.ENGINE_LOST, Failed(code=ErrorCode.ENGINE_LOST, message="engine stopped")
            )

    async def flushed(self) -> None:
        """Wait until everything that was said has been written."""
        await self._outbox.flushed()
        await self._records.flushed()

    async def close(self) -> None:
        """Leave nothing in Redis."""
        await self._counts.close()

    # Work.

    async def _take_for_ever(self, lane: Lane) -> None:
        intake = self._intakes[lane]
        # Without places that the lower lanes leave free, a permit must not wait for a request.
        stands_by = lane is Lane.REALTIME and self._admission.keeps
        while True:
            await self._open.wait()
            if stands_by:
                await self._stand_by(intake)
            else:
                await self._admission.acquire(lane)
            taken = await intake.take(wait=stands_by) if self._open.is_set() else None
            if taken and (taken[1].request.id, taken[1].attempt) not in self._running:
                if stands_by:
                    self._admission.begin()
                self._begin(intake, lane, *taken)
                continue
            if not stands_by:
                self._admission.release(lane)
            if taken:
                await intake.drop(taken[0])
            elif not stands_by:
                await intake.arrival()

    async def _stand_by(self, intake: Intake) -> None:
        """Wait for a permit to wait with. Should a request come sooner, and no other engine have
        it, work makes room for it."""
        while not self._admission.try_stand_by():
            entry_id = await intake.arrival()
            if not self._open.is_set():
                return
            if entry_id is None or not await intake.is_untaken(entry_id):
                continue
            if not self._admission.try_stand_by():
                self._admission.reclaim()
            await self._admission.stand_by()

    def _begin(self, intake: Intake, lane: Lane, entry_id: bytes, entry: QueueEntry) -> None:
        for number in range(entry.attempt):
            if older := self._running.get((entry.request.id, number)):
                older.cancel(CancelReason.SUPERSEDED)
        attempt = Attempt(entry, added_at_s(entry_id))
        attempt.task = asyncio.create_task(self._run(intake, entry_id, attempt))
        self._running[attempt.key] = attempt
        # A callback, because a task that is cancelled before its first step runs no code.
        attempt.task.add_done_callback(partial(self._ended, attempt, lane))

    def _ended(self, attempt: Attempt, lane: Lane, task: asyncio.Task[None]) -> None:
        del self._running[attempt.key]
        self._admission.release(lane)
        if not task.cancelled() and (error := task.exception()):
            logger.error("Running request %s failed", attempt.entry.request.id, exc_info=error)
            self._say(attempt, _BROKEN)
        if measured := attempt.measured():
            self.meters.count(measured, self._backend.stats().pace)
        if record := attempt.record(self._engine_id):
            self._records.put(record)

    async def _run(self, intake: Intake, entry_id: bytes, attempt: Attempt) -> None:
        entry = attempt.entry
        try:
            if not await intake.confirm(entry_id, entry):
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
        frame = Frame(entry.request.id, entry.attempt, self._engine_id, seq, event)
        self._outbox.put(entry.gateway_id, frame)

    async def _listen_for_ever(self) -> None:
        async for told in self._counts.control():
            match told:
                case Cancel():
                    if running := self._running.get((told.request_id, told.attempt)):
                        running.cancel(told.reason)
                    self._counting.cancel(told)
                case Order():
                    self.on_order(told)

    # Watching.

    async def look_for_gateways(self) -> None:
        """Look once whether those who wait still live, and drop what nobody waits for."""
        try:
            await self._look_for_gateways()
        except (*Unreachable, ResponseError):
            # Nobody is judged while Redis is away.
            self._gateway_misses.clear()

    async def _look_for_gateways(self) -> None:
        waiting = {running.entry.gateway_id for running in self._running.values()}
        gateways = sorted(waiting | self._counting.gateways)
        if not gateways:
            return
        pipeline = self._client.pipeline(transaction=False)
        for gateway_id in gateways:
            pipeline.exists(self._keys.gateway(gateway_id))
        for gateway_id, alive in zip(gateways, await pipeline.execute(), strict=True):
            misses = 0 if alive else self._gateway_misses.get(gateway_id, 0) + 1
            self._gateway_misses[gateway_id] = misses
            if misses >= self._misses_until_dead:
                self._gateway_gone(gateway_id)

    def _gateway_gone(self, gateway_id: str) -> None:
        """Nobody listens any more: drop that gateway's requests."""
        self._gateway_misses.pop(gateway_id, None)
        for running in list(self._running.values()):
            if running.entry.gateway_id == gateway_id:
                farewell = Failed(code=ErrorCode.ENGINE_LOST, message="gateway lost")
                running.abort(Ending.GATEWAY_LOST, farewell)
        self._counting.gateway_gone(gateway_id)
