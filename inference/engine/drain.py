"""Drains the work of a model: takes what there is room for, runs it, and says what it came to."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Coroutine, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, NamedTuple

import msgspec

from inference.admission import Admission
from inference.backends.port import Backend
from inference.engine.meters import Meters
from inference.engine.outcomes import Outcomes
from inference.engine.source_thread import SourceThread
from inference.engine.work import WorkItem, WorkSource
from inference.engine.work_attempt import WorkAttempt
from inference.request import Lane
from inference.transport.courier import Courier
from inference.transport.keys import Keys
from inference.transport.log_writer import LogWriter
from inference.transport.records import Ending

logger = logging.getLogger(__name__)

LEASE_RENEW_S = 2.0
# How often an idle engine looks for work that nobody told it of.
POLL_S = 1.0
# Rows that end in one step of the engine, or one after another, are replaced together.
_GATHER_S = 0.005
# Work that was preempted so often is left to run.
_MAX_PREEMPTIONS = 3
# So is work whose deadline has come that near.
_LATE_S = 600.0
# The permits of all work; which of its lanes comes first is its source's matter.
_LANE = Lane.BATCH

_drains: defaultdict[str, set[Drain]] = defaultdict(set)
_drains_lock = threading.Lock()


def wake(model: str) -> None:
    """Let this process' engines of a model look for work at once. From any thread."""
    with _drains_lock:
        drains = list(_drains.get(model, ()))
    for drain in drains:
        drain.wake()


class Logs(NamedTuple):
    """By which way, and under which names, logs are written."""

    courier: Courier
    keys: Keys


class Drain:
    """The work that one engine does beside its realtime requests. Made on the engine's own loop."""

    def __init__(
        self, model: str, backend: Backend, admission: Admission, source: WorkSource, logs: Logs
    ) -> None:
        self._model = model
        self._backend = backend
        self._admission = admission
        self._logs = logs
        self._thread = SourceThread(source)
        self._outcomes = Outcomes(self._thread, self._kept)
        self._running: dict[str, WorkAttempt] = {}
        self._none_running = asyncio.Event()
        self._none_running.set()
        self._alone_waits = False
        self._alone_ids: list[str] = []
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._taking: asyncio.Task[None] | None = None
        self._open = asyncio.Event()
        self._open.set()
        # The last words of logs, on their way.
        self._ending_logs: set[asyncio.Task[None]] = set()
        self.meters = Meters()
        # What making room for realtime has cost, since the engine began.
        self.preemptions = 0
        self.wasted_tokens = 0

    @property
    def in_flight(self) -> int:
        """How much work runs."""
        return len(self._running)

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """What runs it."""
        return [attempt.task for attempt in self._running.values()]

    def wake(self) -> None:
        """Look for work at once. From any thread."""
        # The loop may be closed, if the engine has ended just now.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._woken.set)

    async def run(self) -> None:
        """Take, renew and keep for ever."""
        with _drains_lock:
            _drains[self._model].add(self)
        try:
            async with asyncio.TaskGroup() as group:
                self._taking = group.create_task(self._take_for_ever())
                group.create_task(self._renew_for_ever())
                group.create_task(self._outcomes.run())
        finally:
            with _drains_lock:
                _drains[self._model].discard(self)

    def stop_taking(self) -> None:
        """Take nothing more."""
        if self._taking is not None:
            self._taking.cancel()

    def pause(self) -> None:
        """Take nothing more until `resume`."""
        self._open.clear()

    def resume(self) -> None:
        """Take work again."""
        self._open.set()

    def break_off(self, *, engine_died: bool) -> None:
        """Stop all that runs: the engine died under it, or another is to run it."""
        for attempt in list(self._running.values()):
            if engine_died:
                attempt.break_off(Ending.ENGINE_LOST)
            else:
                attempt.give_up()

    def preempt(self) -> bool:
        """Stop what costs least to begin again: of the least urgent lane what was stopped least
        often, and of that the youngest.

        It goes back and runs again later. Returns False if nothing may be stopped: it was often
        enough, its deadline is near, it runs alone, somebody has read of it, a tool was run for it,
        or it is through.
        """
        running = [attempt for attempt in self._running.values() if _is_preemptible(attempt)]
        if not running:
            return False
        max(running, key=_dispensability).preempt()
        return True

    async def close(self) -> None:
        """Hand over what is here, and end the lease. Should that fail, the lease runs out."""
        try:
            if await self._outcomes.flush():
                await self._thread.close()
            if self._ending_logs:
                await asyncio.wait(self._ending_logs)
        finally:
            self._thread.stop()

    # Taking.

    async def _take_for_ever(self) -> None:
        # An engine without work asks for one piece at a time, and keeps nobody from a permit.
        there_is_more = False
        while True:
            await self._open.wait()
            await self._outcomes.room()
            if self._alone_waits:
                await self._none_running.wait()
                self._alone_waits = False
            await self._admission.acquire(_LANE)
            permits = 1
            try:
                if not self._open.is_set():
                    continue
                if there_is_more and not self._alone_ids:
                    await asyncio.sleep(_GATHER_S)
                    permits += self._admission.try_acquire(_LANE, self._admission.capacity)
                self._woken.clear()
                first, self._alone_ids = self._alone_ids, []
                returning = [each for each in first if self._outcomes.gives_back(each)]
                done = await self._thread.do(partial(_claim, permits, first))
                if done.exception():
                    items, self._alone_ids = [], first
                else:
                    items = done.result()
                    self._alone_ids = list(_rest_of(first, returning, items))
                permits -= self._begin(items)
            finally:
                self._admission.release(_LANE, permits)
            there_is_more = not permits
            if error := done.exception():
                logger.error("No work can be taken; it is tried again", exc_info=error)
                await asyncio.sleep(POLL_S)
            elif not there_is_more:
                await self._rest()

    async def _rest(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(POLL_S):
                await self._woken.wait()

    def _begin(self, items: Sequence[WorkItem]) -> int:
        """Start what may run now, give the rest back, and return how many were started."""
        fitting = self._fitting(items)
        begun = {item.request.id for item in fitting}
        for item in items:
            if item.request.id not in begun:
                self._outcomes.give_back(item.request.id)
        for item in fitting:
            self._start(item)
        return len(begun)

    def _fitting(self, items: Sequence[WorkItem]) -> list[WorkItem]:
        """Return what of the items can run beside what does, and beside each other."""
        new = [item for item in items if not self._is_known(item.request.id)]
        alone = [item for item in new if item.alone]
        # Until an item that is to run alone has done so, nothing else is taken; those that cannot
        # yet are the next, whatever else waits by then.
        self._alone_waits = bool(alone)
        fitting = [item for item in new if not item.alone]
        if alone and not self._running:
            fitting = [alone.pop(0)]
        self._alone_ids += [item.request.id for item in alone]
        return fitting

    def _is_known(self, request_id: str) -> bool:
        """Whether it was lost to another engine while it still runs, or is to be ended, here."""
        if attempt := self._running.get(request_id):
            attempt.give_up()
        return attempt is not None or request_id in self._outcomes

    # Running.

    def _start(self, item: WorkItem) -> None:
        request = item.request
        attempt = WorkAttempt(item)
        if item.logged:
            courier, keys = self._logs
            attempt.log = LogWriter(
                courier, keys, request.id, request.deadline_s, on_taken_over=attempt.give_up
            )
        self._running[request.id] = attempt
        self._none_running.clear()
        attempt.task = asyncio.create_task(self._run(attempt))
        # A callback, because a task that is cancelled before its first step runs no code.
        attempt.task.add_done_callback(partial(self._ended, attempt))
        left_s = max(0.0, request.deadline_s - time.time())
        attempt.timer = self._loop.call_later(left_s, attempt.break_off, Ending.TIMEOUT)

    async def _run(self, attempt: WorkAttempt) -> None:
        await attempt.open_log()
        request = attempt.item.request
        if attempt.item.urgent:
            # Its deadline is near: it rises above the work that has time.
            request = msgspec.structs.replace(request, lane=Lane.FLEX)
        async with aclosing(self._backend.generate(request, attempt.tally)) as events:
            async for event in events:
                if not attempt.take(event):
                    break

    def _ended(self, attempt: WorkAttempt, task: asyncio.Task[None]) -> None:
        if attempt.timer is not None:
            attempt.timer.cancel()
        del self._running[attempt.id]
        self.meters.count(attempt.measured())
        self._admission.release(_LANE)
        if not self._running:
            self._none_running.set()
        if not task.cancelled() and (error := task.exception()):
            logger.error("Running work %s failed", attempt.id, exc_info=error)
        if attempt.given_up:
            if attempt.log is not None:
                attempt.log.close()
            if attempt.preempted:
                self.preemptions += 1
                self.wasted_tokens += attempt.wasted_tokens
            self._outcomes.give_back(attempt.id, preempted=attempt.preempted)
            return
        attempt.settle(engine_died=self._backend.failure() is not None)
        self._outcomes.put(attempt)

    def _kept(self, attempt: WorkAttempt) -> None:
        if attempt.log is not None:
            self._spawn(attempt.end_log())

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._ending_logs.add(task)
        task.add_done_callback(self._ending_logs.discard)

    # Keeping what was taken.

    async def _renew_for_ever(self) -> None:
        while True:
            await asyncio.sleep(LEASE_RENEW_S)
            done = await self._thread.do(partial(_renew, list(self._running)))
            if error := done.exception():
                logger.warning("The engine's lease is not renewed yet: %s", error)
                continue
            for request_id in done.result():
                if attempt := self._running.get(request_id):
                    attempt.break_off(Ending.CANCELLED)


def _is_preemptible(attempt: WorkAttempt) -> bool:
    item = attempt.item
    often = item.preemptions >= _MAX_PREEMPTIONS
    is_late = item.urgent or item.request.deadline_s - time.time() < _LATE_S
    is_over = attempt.is_over or attempt.end is not None
    # Another attempt would have to say the same words again to whoever follows it, and a tool would
    # do again what it has done.
    is_told = (item.logged and attempt.has_said) or attempt.has_called
    return not (often or is_late or item.alone or is_told or is_over)


def _dispensability(attempt: WorkAttempt) -> tuple[int, int, float]:
    return attempt.urgency, -attempt.item.preemptions, attempt.taken_at_s


def _rest_of(
    first: Sequence[str], returning: Sequence[str], items: Sequence[WorkItem]
) -> Sequence[str]:
    """Return what of those asked for is still to come.

    If none of them has, others have them, save those that were only just being given back.
    """
    got = {item.request.id for item in items}
    rest = [request_id for request_id in first if request_id not in got]
    return rest if len(rest) < len(first) else returning


def _claim(limit: int, first: Sequence[str], source: WorkSource) -> list[WorkItem]:
    return source.claim(limit, first)


def _renew(running: Collection[str], source: WorkSource) -> set[str]:
    return source.renew(running)
