"""A simulated fleet: one queue of realtime requests, and engines that take from it."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from random import Random

from inference.request import Lane
from tests.benchmarks.simulator.arrivals import Arrival
from tests.benchmarks.simulator.engine import Engine, World
from tests.benchmarks.simulator.machine import Machine
from tests.benchmarks.simulator.policy import Policy
from tests.benchmarks.simulator.tally import Job, Tally

Rows = Callable[[int], Iterator[Arrival]]
"""Gives each engine, by its number, its rows of work."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What is simulated. What comes and happens from `warm_up_s` to `window_s` is measured.

    Engines stand by for realtime. Who waited longest has the next request, as Redis has it; with a
    `bid_s` an engine holds back so long for each realtime request that it has, so that the least
    loaded one is first.
    """

    machine: Machine
    engines: int
    policy: Policy
    window_s: float
    warm_up_s: float
    bid_s: float | None = None
    shared_tokens: int = 0
    seed: int = 0


class Fleet:
    """Engines and the queue before them."""

    def __init__(self, setup: Setup, rows: Rows) -> None:
        self.tally = Tally(setup.warm_up_s, setup.window_s)
        self._setup = setup
        self._now_s = 0.0
        world = World(
            machine=setup.machine,
            policy=setup.policy,
            model=setup.machine.learned(),
            tally=self.tally,
            clock=lambda: self._now_s,
            shared_tokens=setup.shared_tokens,
        )
        self.engines = [
            Engine(world, rows(number), Random(f"{setup.seed} {number}"))
            for number in range(setup.engines)
        ]
        self._queue: deque[Job] = deque()
        self._standing_by: deque[Engine] = deque()
        self._full: list[Engine] = []
        self._events: list[tuple[float, int, Engine, Job | None]] = []
        self._numbers = count()
        self._outstanding = 0

    def run(self, arrivals: Sequence[Arrival]) -> list[Job]:
        """Run until the window is over and every arrival has been answered. Return them."""
        jobs = [Job(Lane.REALTIME, *arrival) for arrival in arrivals]
        self._outstanding = len(jobs)
        for engine in self.engines:
            self._stand_by(engine)
            assert engine.stands_by, "realtime waits for places only where there are several"
        for engine in self.engines:
            self._plan(engine)
        come = iter(jobs)
        job = next(come, None)
        while self._outstanding or (self._events and self._now_s < self._setup.window_s):
            if job is not None and (not self._events or job.arrived_s <= self._events[0][0]):
                self._now_s = job.arrived_s
                self._arrive(job)
                job = next(come, None)
            else:
                self._happen()
        return jobs

    def _happen(self) -> None:
        at_s, _, engine, job = heapq.heappop(self._events)
        self._now_s = at_s
        if job is not None:
            self._submit(engine, job)
        elif engine.run is not None and engine.run.end_s <= at_s:
            self._outstanding -= len(engine.finish(at_s))
            if engine in self._full and self._stand_by(engine):
                self._full.remove(engine)
                self._hand_out()
            if engine.run is None:
                self._plan(engine)

    def _arrive(self, job: Job) -> None:
        self._queue.append(job)
        # Every engine that has no place sees that a request has come, and makes room for it.
        for engine in list(self._full):
            if not engine.admission.try_stand_by():
                engine.admission.reclaim()
            if self._stand_by(engine):
                self._full.remove(engine)
            self._look(engine)
        self._hand_out()

    def _stand_by(self, engine: Engine) -> bool:
        """Let an engine wait for the next request, if it has a place for it."""
        engine.stands_by = engine.admission.try_stand_by()
        if engine.stands_by:
            self._standing_by.append(engine)
        return engine.stands_by

    def _hand_out(self) -> None:
        while self._queue and self._standing_by:
            job, bid_s = self._queue.popleft(), self._setup.bid_s
            if bid_s is None:
                engine, after_s = self._standing_by.popleft(), 0.0
            else:
                engine = min(self._standing_by, key=lambda engine: engine.load)
                self._standing_by.remove(engine)
                after_s = bid_s * engine.admission.held(Lane.REALTIME)
            engine.admission.begin()
            if not self._stand_by(engine):
                self._full.append(engine)
            if after_s:
                self._push(self._now_s + after_s, engine, job)
            else:
                self._submit(engine, job)

    def _submit(self, engine: Engine, job: Job) -> None:
        engine.submit(job, self._now_s)
        if engine.run is None:
            self._plan(engine)
        else:
            self._look(engine)

    def _plan(self, engine: Engine) -> None:
        engine.plan(self._now_s)
        self._look(engine)

    def _look(self, engine: Engine) -> None:
        """Come back to an engine when its run ends, which may be sooner than it was."""
        if engine.run is not None:
            self._push(engine.run.end_s, engine, None)

    def _push(self, at_s: float, engine: Engine, job: Job | None) -> None:
        heapq.heappush(self._events, (at_s, next(self._numbers), engine, job))
