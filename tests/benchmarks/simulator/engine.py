"""One simulated engine: plans its steps as vLLM with our scheduler does.

Steps in which the same runs are taken together: most of an engine's steps only decode. That is
three times as fast as step by step, and no figure is off by more than two in a hundred.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import count
from random import Random
from typing import NamedTuple

from inference.admission import Admission
from inference.pace import Demand, Pace, Share
from inference.request import Lane
from inference.step_model import Step, StepModel
from tests.benchmarks.simulator.arrivals import Arrival
from tests.benchmarks.simulator.machine import Machine
from tests.benchmarks.simulator.policy import Clock, Policy
from tests.benchmarks.simulator.tally import Job, Tally
from tests.benchmarks.simulator.work_rows import WorkRows

# So many steps at most are taken together; fewer beside realtime, where the pace is asked anew.
_MOST_STEPS = 32
_MOST_PACED_STEPS = 8
# As in `inference.engine.drain`.
_MAX_PREEMPTIONS = 3
_UNLIMITED = 1 << 30


class World(NamedTuple):
    """What all engines of a fleet have in common. `model` is what their paces know of steps."""

    machine: Machine
    policy: Policy
    model: StepModel
    tally: Tally
    clock: Clock
    shared_tokens: int = 0


class Run(NamedTuple):
    """Steps in which the same runs: rows of work, and so many tokens of some prompts in each."""

    begin_s: float
    step_s: float
    steps: int
    work_rows: int
    chunks: list[tuple[Job, int]]

    @property
    def end_s(self) -> float:
        """When the last step ends."""
        return self.begin_s + self.steps * self.step_s


class Engine:
    """One engine. `run` is what it is at, if it is at anything.

    `kv_tokens` of its cache are in use.
    """

    def __init__(self, world: World, source: Iterator[Arrival], rng: Random) -> None:
        machine, policy = world.machine, world.policy
        self._world, self._source, self._rng = world, source, rng
        make = policy.admission
        self.admission = (make or Admission)(machine.places if make else _UNLIMITED, world.clock)
        self.admission.reclaim = self.preempt
        ahead = 1 + machine.plans_ahead
        self._pace = Pace(policy.targets, ahead) if policy.targets else None
        if self._pace:
            self._pace.model = world.model
        self.run: Run | None = None
        self.stands_by = False
        self._steps = 0
        # Realtime: prompts, and answers by the step of theirs that ends them.
        self._prompts: list[Job] = []
        self._answers: list[tuple[int, int, Job]] = []
        self._numbers = count()
        self._answer_steps = self._answer_context = 0
        # Work: rows to be prefilled, rows that decode, and rows to begin anew.
        self._filling: list[Job] = []
        self._rows = WorkRows(machine.places)
        self._again: list[Job] = []
        self._aborted: list[Job] = []
        self._fill_tokens = self._begun = 0
        self.kv_tokens = 0
        self._has_prefix = False

    # What comes and goes.

    @property
    def load(self) -> tuple[int, int]:
        """What a realtime request would have before it: prompts' tokens, and answers beside it."""
        return sum(job.left for job in self._prompts), len(self._answers)

    @property
    def begun(self) -> int:
        """How many requests have a place in it."""
        prompts = sum(job.computed > 0 for job in self._prompts)
        return prompts + self._begun + len(self._answers) + len(self._rows)

    @property
    def in_flight(self) -> int:
        """How many requests it has."""
        return len(self._prompts) + len(self._answers) + self._work

    @property
    def _work(self) -> int:
        return len(self._filling) + len(self._rows)

    def submit(self, job: Job, now_s: float) -> None:
        """Take a realtime request in."""
        job.from_step = self._steps + self._interrupt(now_s)
        self._prompts.append(job)

    def _interrupt(self, now_s: float) -> int:
        """End a run after the step that it is in, and the one planned. Return its steps so far."""
        if self.run is None:
            return 0
        done = int((now_s - self.run.begin_s) / self.run.step_s)
        after = done + 1 + self._world.machine.plans_ahead
        if after < self.run.steps:
            self.run = self.run._replace(steps=after)
        return after

    def preempt(self) -> bool:
        """Stop the youngest row that may be, as the engine's drain does."""
        for job in (*reversed(self._filling), *reversed(self._rows.jobs)):
            if job.preemptions < _MAX_PREEMPTIONS and not job.aborted:
                job.aborted = True
                self._aborted.append(job)
                self.admission.release(Lane.BATCH)
                self._interrupt(self._world.clock())
                return True
        return False

    def _drop_aborted(self, now_s: float) -> None:
        for job in self._aborted:
            job.aborted = False
            # It may have come to its end in the meantime.
            if job.ended_s is None:
                self._remove(job)
                self._world.tally.lost(job, now_s)
                job.preemptions += 1
                self._restart(job)
                self._again.append(job)
        self._aborted.clear()

    def _remove(self, job: Job) -> None:
        if job in self._filling:
            self._leave_filling(job)
        else:
            self._rows.remove(job)
        self.kv_tokens -= job.computed - job.cached

    def _fill(self, job: Job, place: int) -> None:
        self._filling.insert(place, job)
        self._fill_tokens += job.left

    def _leave_filling(self, job: Job) -> None:
        self._filling.remove(job)
        self._fill_tokens -= job.left
        self._begun -= job.computed > job.cached

    def _restart(self, job: Job) -> None:
        """Let a row begin, with what it finds in the cache."""
        shared_tokens = self._world.shared_tokens if self._has_prefix else 0
        job.cached = job.computed = min(shared_tokens, job.prompt_tokens - 1)
        job.left = job.prompt_tokens - job.cached
        job.made = 0
        self._has_prefix = True

    # Planning.

    def plan(self, now_s: float) -> None:
        """Begin the next run, if there is anything to run."""
        self._drop_aborted(now_s)
        self._take_work()
        prompts = [job for job in self._prompts if job.from_step <= self._steps]
        self._make_room(sum(job.left for job in prompts))
        share = self._share(prompts, now_s)
        budget = self._world.machine.step_tokens - len(self._answers)
        work_rows = min(share.rows, len(self._rows), max(0, budget))
        chunks = self._chunks(prompts, share.prefill_tokens, budget - work_rows)
        if not (self._answers or work_rows or chunks):
            # What was planned before a request came may be a step with nothing in it.
            if len(prompts) < len(self._prompts):
                self._steps += 1
                self.plan(now_s)
            return
        steps = self._steps_alike(work_rows, chunks, has_prompts=len(prompts) < len(self._prompts))
        step_s = self._step_s(work_rows, chunks, steps)
        self.run = Run(now_s, step_s, steps, work_rows, chunks)

    def _take_work(self) -> None:
        """Take as many rows as there are permits for; without admission, as there are places."""
        policy, places = self._world.policy, self._world.machine.places
        if not policy.work or (policy.admission and not self.stands_by):
            return
        if policy.admission is None:
            permits = max(0, places - self.in_flight)
        else:
            permits = self.admission.try_acquire(Lane.BATCH, places)
        while permits and (job := self._next_row()):
            self._fill(job, len(self._filling))
            permits -= 1
        if permits and policy.admission:
            self.admission.release(Lane.BATCH, permits)

    def _next_row(self) -> Job | None:
        if self._again:
            return self._again.pop(0)
        if (row := next(self._source, None)) is None:
            return None
        job = Job(Lane.BATCH, self._world.clock(), row.prompt_tokens, row.output_tokens)
        self._restart(job)
        return job

    def _make_room(self, needed: int) -> None:
        """Evict the youngest rows where realtime's prompts, or the next tokens, find no room."""
        machine = self._world.machine
        growth = len(self._answers) + len(self._rows)
        while self.kv_tokens + needed + growth > machine.kv_tokens and len(self._rows):
            job = self._rows.jobs[-1]
            self._remove(job)
            self._world.tally.evictions += 1
            # It keeps what it has said, which becomes a part of its prompt.
            job.left, job.computed = job.computed - job.cached, job.cached
            self._fill(job, 0)
            growth -= 1

    def _share(self, prompts: list[Job], now_s: float) -> Share:
        if self._pace is None or not self._work:
            return Share(len(self._rows), _UNLIMITED)
        demand = Demand(
            rows=len(self._answers),
            prefill_tokens=sum(job.left for job in prompts),
            context_tokens=self._answer_context,
            waited_s=now_s - prompts[0].arrived_s if prompts else 0.0,
            work_rows=len(self._rows),
            work_prefill_tokens=self._fill_tokens,
            work_context_tokens=self._rows.context(),
        )
        return self._pace.share(demand, now_s)

    def _chunks(self, prompts: list[Job], work_tokens: int, budget: int) -> list[tuple[Job, int]]:
        """Share a step's tokens out to prompts: paced, realtime's come before work's; without,
        those that have begun come first."""
        chunks = []
        places = self._world.machine.places - self.begun
        # What decodes has its room already.
        room = self._world.machine.kv_tokens - self.kv_tokens
        room -= len(self._answers) + len(self._rows)
        order = [*prompts, *self._filling]
        if self._pace is None:
            order.sort(key=lambda job: job.computed == job.cached)
        for job in order:
            is_work = job.lane is not Lane.REALTIME
            if budget <= 0 or (is_work and work_tokens <= 0):
                break
            tokens = min(job.left, budget, work_tokens if is_work else budget)
            begins = job.computed == job.cached
            if begins and (places <= 0 or job.left > room):
                continue
            places -= begins
            room -= tokens
            budget -= tokens
            work_tokens -= tokens if is_work else 0
            chunks.append((job, tokens))
        return chunks

    def _steps_alike(
        self, work_rows: int, chunks: list[tuple[Job, int]], *, has_prompts: bool
    ) -> int:
        """Return for how many steps the same runs."""
        if has_prompts:
            return 1
        steps = _MOST_PACED_STEPS if self._pace and self._answers and self._work else _MOST_STEPS
        if self._answers:
            steps = min(steps, self._answers[0][0] - self._answer_steps)
        if work_rows:
            steps = min(steps, self._rows.least_left(work_rows))
        for job, tokens in chunks:
            if job.lane is Lane.REALTIME or len(chunks) > 1:
                return 1
            steps = min(steps, max(1, job.left // tokens))
        growth = len(self._answers) + work_rows + sum(tokens for _, tokens in chunks)
        free = self._world.machine.kv_tokens - self.kv_tokens
        return min(steps, max(1, free // growth))

    def _step_s(self, work_rows: int, chunks: list[tuple[Job, int]], steps: int) -> float:
        machine = self._world.machine
        rows = len(self._answers) + work_rows
        context = self._answer_context + self._rows.context(work_rows) + rows * (steps - 1) // 2
        prefill = 0
        for job, tokens in chunks:
            prefill += tokens
            context += job.computed
        step_s = machine.step_s(Step(rows, prefill, context))
        if machine.noise:
            step_s *= max(0.5, self._rng.gauss(1, machine.noise))
        return step_s

    # What a run has come to.

    def finish(self, now_s: float) -> list[Job]:
        """End the run. Return the realtime requests that have ended with it."""
        run = self.run
        assert run is not None
        self.run = None
        self._steps += run.steps
        self._world.tally.saw_run(run.steps * run.step_s, now_s)
        ended = self._decode_answers(run, now_s)
        if run.work_rows:
            self._decode_work(run, now_s)
        for job, tokens in run.chunks:
            self._prefill(job, tokens * run.steps)
            if not job.left and self._first_token(job, tokens, now_s):
                ended.append(job)
        self._drop_aborted(now_s)
        return ended

    def _prefill(self, job: Job, tokens: int) -> None:
        if job.lane is not Lane.REALTIME:
            self._fill_tokens -= tokens
            self._begun += job.computed == job.cached
        job.left -= tokens
        job.computed += tokens
        self.kv_tokens += tokens

    def _decode_answers(self, run: Run, now_s: float) -> list[Job]:
        rows = len(self._answers)
        if not rows:
            return []
        self._answer_steps += run.steps
        self._answer_context += rows * run.steps
        self.kv_tokens += rows * run.steps
        self._world.tally.saw_gap(run.step_s, rows * run.steps, now_s)
        ended = []
        while self._answers and self._answers[0][0] <= self._answer_steps:
            job = heapq.heappop(self._answers)[2]
            job.computed += job.output_tokens - 1
            self._answer_context -= job.computed
            self._end_answer(job, now_s)
            ended.append(job)
        return ended

    def _decode_work(self, run: Run, now_s: float) -> None:
        tokens = run.work_rows * run.steps
        self.kv_tokens += tokens
        tally = self._world.tally
        tally.saw_work(tokens, now_s)
        for job in self._rows.decode(run.work_rows, run.steps):
            self._end_row(job, now_s)

    def _end_row(self, job: Job, now_s: float) -> None:
        job.ended_s = now_s
        self.kv_tokens -= job.computed - job.cached
        tally = self._world.tally
        tally.work_ended += 1
        tally.ended_tokens += job.output_tokens
        if self._world.policy.admission and not job.aborted:
            self.admission.release(Lane.BATCH)

    def _first_token(self, job: Job, tokens: int, now_s: float) -> bool:
        """Take in that a prompt's first token has come. Return whether it was all of an answer."""
        if job.lane is Lane.REALTIME:
            self._prompts.remove(job)
            if self._pace:
                self._pace.saw_prompt(tokens)
            self._world.tally.saw_first(job, now_s)
            self._world.tally.realtime_tokens += 1
            if job.output_tokens == 1:
                self._end_answer(job, now_s)
                return True
            due = self._answer_steps + job.output_tokens - 1
            heapq.heappush(self._answers, (due, next(self._numbers), job))
            self._answer_context += job.computed
            return False
        self._leave_filling(job)
        job.made += 1
        self._world.tally.saw_work(1, now_s)
        if job.made == job.output_tokens:
            self._end_row(job, now_s)
        else:
            self._rows.add(job)
        return False

    def _end_answer(self, job: Job, now_s: float) -> None:
        job.ended_s = now_s
        self.kv_tokens -= job.computed
        self._world.tally.realtime_ended += 1
        self.admission.release(Lane.REALTIME)
