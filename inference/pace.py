"""The pace of work in an engine: what of it each step runs, so that realtime keeps its targets.

Work may have every place of an engine. What it costs realtime is the time that its rows and prompts
add to the steps in which realtime answers run, and the rest of the step that a new request finds
running. Both are decided step by step: a row that is held for a step keeps its place and its cache,
so holding costs nothing and ends when realtime does.

Pure: no clock, no engine. `inference.backends.vllm_scheduler` asks for each step of vLLM's,
`tests/benchmarks/simulate.py` for each of a simulated engine's.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from inference.admission import QUIET_AFTER_S
from inference.pace_stats import PaceStats
from inference.step_model import Step, StepModel

# Targets are aimed at from below: no prediction is exact.
_MARGIN = 0.9
# A first token waits for more than the step that is planned: for its way here, the rest of the step
# that it found, and the prompts of others who came just before.
_TTFT_MARGIN = 0.6
# A step that prefills work may always take so much longer than one that only decodes it; and so
# much longer once realtime has been quiet for long.
_LEAST_PREFILL_SHARE = 0.25
_QUIET_PREFILL_SHARE = 2.0
# What realtime asks is taken to be as long as it lately was; before any, so long.
_PROMPT_TOKENS = 64
_PROMPT_MEMORY = 20
# Work that is held altogether has one row, or a piece of a prompt, run each so often.
_HELD_FOR_S = 2.0


class Targets(msgspec.Struct, frozen=True, kw_only=True):
    """What realtime is to see: the times, or how many times those of the idle engine."""

    ttft_ms: float | None = None
    itl_ms: float | None = None
    ttft_factor: float = 2.5
    itl_factor: float = 2.0


class Demand(NamedTuple):
    """What could run in a step.

    `rows` and `prefill_tokens` are realtime's, `waited_s` is how long ago the oldest of its
    requests came that has no first token yet. `work_rows` decode, of which `floor_rows` run
    whatever realtime does; `work_prefill_tokens` are what is not prefilled of work's prompts, and
    of `floor_prefill_tokens` among them a piece is prefilled whatever realtime does.
    Context is counted in tokens, for all rows of the kind.
    """

    rows: int = 0
    prefill_tokens: int = 0
    context_tokens: int = 0
    waited_s: float = 0.0
    work_rows: int = 0
    floor_rows: int = 0
    work_prefill_tokens: int = 0
    floor_prefill_tokens: int = 0
    work_context_tokens: int = 0

    @property
    def is_realtime(self) -> bool:
        """Whether realtime has a part in the step."""
        return bool(self.rows or self.prefill_tokens)


class Share(NamedTuple):
    """What of work runs in a step."""

    rows: int
    prefill_tokens: int


class Pace:
    """Decides the work of each step of one engine, and learns from how long they take.

    `steps_ahead` is how many steps are under way already when a request comes: 1, or 2 where the
    next one is planned while one runs.
    """

    def __init__(self, targets: Targets, steps_ahead: int = 1) -> None:
        self.model = StepModel()
        self._targets = targets
        self._steps_ahead = steps_ahead
        self._prompt_tokens = float(_PROMPT_TOKENS)
        self._ran_at_s = float("-inf")
        self._realtime_at_s = float("-inf")

    @property
    def idle_itl_s(self) -> float:
        """The time between tokens of one answer in an engine that does nothing else."""
        return self.model.predict(Step(rows=1))

    @property
    def idle_ttft_s(self) -> float:
        """The time to the first token of an idle engine, for a prompt as long as the last ones."""
        return self.model.predict(Step(rows=0, prefill_tokens=round(self._prompt_tokens)))

    @property
    def itl_target_s(self) -> float:
        """The time between tokens that realtime is to see."""
        target_ms = self._targets.itl_ms
        if target_ms is not None:
            return target_ms / 1000
        return self.idle_itl_s * self._targets.itl_factor

    @property
    def ttft_target_s(self) -> float:
        """The time to the first token that realtime is to see."""
        target_ms = self._targets.ttft_ms
        if target_ms is not None:
            return target_ms / 1000
        return self.idle_ttft_s * self._targets.ttft_factor

    def stats(self, **counts: int) -> PaceStats:
        """Return the targets as they are, with what the engine has counted."""
        return PaceStats(
            itl_target_s=self.itl_target_s,
            ttft_target_s=self.ttft_target_s,
            idle_itl_s=self.idle_itl_s,
            idle_ttft_s=self.idle_ttft_s,
            **counts,
        )

    def learn(self, step: Step, time_s: float) -> None:
        """Take in how long a step took."""
        self.model.learn(step, time_s)

    def saw_prompt(self, tokens: int) -> None:
        """Take in how many tokens of a realtime request's prompt had to be prefilled."""
        self._prompt_tokens += (tokens - self._prompt_tokens) / _PROMPT_MEMORY

    def share(self, demand: Demand, now_s: float) -> Share:
        """Return what of work runs in the next step. `now_s` is of any clock that goes on."""
        if demand.is_realtime:
            self._realtime_at_s = now_s
        if not self.model.is_known:
            share = Share(demand.work_rows, demand.work_prefill_tokens)
        elif demand.is_realtime:
            share = self._beside_realtime(demand, now_s)
        else:
            share = Share(demand.work_rows, self._quiet_prefill(demand, now_s))
        if share.rows or share.prefill_tokens:
            self._ran_at_s = now_s
        return share

    def _beside_realtime(self, demand: Demand, now_s: float) -> Share:
        """Return what fits beside realtime until its targets are used up."""
        limit_s = self.itl_target_s * _MARGIN if demand.rows else float("inf")
        if demand.prefill_tokens:
            left_s = self.ttft_target_s * _TTFT_MARGIN - demand.waited_s
            limit_s = min(limit_s, max(left_s, 0.0))
        own = Step(demand.rows, demand.prefill_tokens, demand.context_tokens)
        left_s = limit_s - self.model.predict(own)
        least, least_prefill = demand.floor_rows, demand.floor_prefill_tokens
        if now_s - self._ran_at_s > _HELD_FOR_S:
            least, least_prefill = max(least, 1), demand.work_prefill_tokens
        row_s = self._row_s(demand)
        rows = min(demand.work_rows, max(least, _times(left_s, row_s)))
        piece = max(1, _times(self.itl_target_s * _LEAST_PREFILL_SHARE, self.model.token_s))
        prefill = max(_times(left_s - rows * row_s, self.model.token_s), min(least_prefill, piece))
        return Share(rows, min(demand.work_prefill_tokens, prefill))

    def _quiet_prefill(self, demand: Demand, now_s: float) -> int:
        """Return how much is prefilled while realtime is quiet: a request may come any moment,
        and must not find a step that runs for long."""
        is_quiet = now_s - self._realtime_at_s > QUIET_AFTER_S
        least = _QUIET_PREFILL_SHARE if is_quiet else _LEAST_PREFILL_SHARE / self._steps_ahead
        rows = Step(demand.work_rows, 0, demand.work_context_tokens)
        decode_s = max(self.model.predict(rows), self.idle_itl_s)
        wait_s = (self.ttft_target_s * _TTFT_MARGIN - self.idle_ttft_s) / self._steps_ahead
        spare_s = wait_s - decode_s
        left_s = max(spare_s, decode_s * least)
        return min(demand.work_prefill_tokens, max(1, _times(left_s, self.model.token_s)))

    def _row_s(self, demand: Demand) -> float:
        context_tokens = demand.work_context_tokens / demand.work_rows if demand.work_rows else 0
        return self.model.row_s + self.model.context_s * context_tokens


def _times(time_s: float, each_s: float) -> int:
    """Return how often something fits into a time; as often as one likes, if it takes none."""
    if time_s <= 0:
        return 0
    return int(time_s / each_s) if each_s > 0 else 1 << 30
