"""What a simulated fleet has done, and the figures that it adds up to."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from inference.request import Lane


class Job:
    """A request in a simulated engine.

    Of its context `computed` tokens are there, `cached` of which it found there; `left` of its
    prompt are to be prefilled, and `made` were put out.
    """

    __slots__ = (
        "aborted",
        "arrived_s",
        "cached",
        "computed",
        "ended_s",
        "first_s",
        "from_step",
        "lane",
        "left",
        "made",
        "output_tokens",
        "preemptions",
        "prompt_tokens",
    )

    def __init__(
        self, lane: Lane, arrived_s: float, prompt_tokens: int, output_tokens: int
    ) -> None:
        self.lane = lane
        self.arrived_s = arrived_s
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.left = prompt_tokens
        self.computed = self.cached = self.made = 0
        self.from_step = 0
        self.preemptions = 0
        self.aborted = False
        self.first_s: float | None = None
        self.ended_s: float | None = None


@dataclass
class Tally:
    """What is counted, of what happens from `begin_s` to `end_s`; of realtime, of what comes then.

    `gaps` has times between two tokens of an answer, each with how often it was seen. Engines were
    busy for `busy_s` in all.
    """

    begin_s: float
    end_s: float
    firsts_s: list[float] = field(default_factory=list)
    gaps: list[tuple[float, int]] = field(default_factory=list)
    realtime_ended: int = 0
    realtime_tokens: int = 0
    work_ended: int = 0
    work_tokens: int = 0
    ended_tokens: int = 0
    lost_tokens: int = 0
    wasted_tokens: int = 0
    preemptions: int = 0
    evictions: int = 0
    busy_s: float = 0.0

    def is_within(self, at_s: float) -> bool:
        """Whether what happens at a moment counts."""
        return self.begin_s <= at_s < self.end_s

    def saw_run(self, lasted_s: float, at_s: float) -> None:
        """Take in how long an engine was busy."""
        if self.is_within(at_s):
            self.busy_s += lasted_s

    def saw_first(self, job: Job, at_s: float) -> None:
        """Take in the first token of a realtime request."""
        job.first_s = at_s
        if self.is_within(job.arrived_s):
            self.firsts_s.append(at_s - job.arrived_s)

    def saw_gap(self, gap_s: float, times: int, at_s: float) -> None:
        """Take in times between tokens of realtime."""
        self.realtime_tokens += times
        if self.is_within(at_s):
            self.gaps.append((gap_s, times))

    def saw_work(self, tokens: int, at_s: float) -> None:
        """Take in tokens that work put out."""
        if self.is_within(at_s):
            self.work_tokens += tokens

    def lost(self, job: Job, at_s: float) -> None:
        """Take in that work was preempted: what it had is computed anew."""
        self.preemptions += 1
        self.lost_tokens += job.made
        self.wasted_tokens += job.computed - job.cached
        self.saw_work(-job.made, at_s)

    def first_ms(self, percent: float) -> float:
        """A percentile of the times to the first token, in milliseconds."""
        return float(np.percentile(self.firsts_s, percent)) * 1000 if self.firsts_s else np.nan

    @property
    def first_mean_ms(self) -> float:
        """The mean time to the first token, in milliseconds."""
        return float(np.mean(self.firsts_s)) * 1000 if self.firsts_s else np.nan

    @property
    def gap_mean_ms(self) -> float:
        """The mean time between tokens, in milliseconds."""
        gaps_s, times = self._gaps()
        return float(np.average(gaps_s, weights=times)) * 1000 if len(times) else np.nan

    def gap_ms(self, percent: float) -> float:
        """A percentile of the times between tokens, in milliseconds."""
        gaps_s, times = self._gaps()
        if not len(times):
            return np.nan
        order = gaps_s.argsort()
        reached = times[order].cumsum()
        place = int(np.searchsorted(reached, reached[-1] * percent / 100))
        return float(gaps_s[order][place]) * 1000

    def _gaps(self) -> tuple[np.ndarray, np.ndarray]:
        pairs = np.array(self.gaps, dtype=float).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]

    @property
    def work_tokens_per_s(self) -> float:
        """Tokens that work put out and kept."""
        return self.work_tokens / (self.end_s - self.begin_s)
