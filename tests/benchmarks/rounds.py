"""Rounds of one load against two servers in turn, and the figures that they add up to."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import psutil

from tests.benchmarks.load import MESSAGES, Load, Sample, take

# Above this share of one core the client is a part of what is measured.
_CLIENT_LIMIT = 0.85


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One server under test, and the path that is asked.

    `processes` are the roots of its process trees, by name.
    """

    name: str
    port: int
    model: str
    processes: dict[str, int]
    headers: dict[str, str] = field(default_factory=dict)
    path: str = MESSAGES


@dataclass(frozen=True, kw_only=True)
class Round:
    """One load on one arm. `cpu_s` has the CPU seconds of each of its processes.

    It began at `began_at_s`, in seconds since 1970. `foreign_cpu` is the share of the machine that
    others used meanwhile, between 0 and 1.
    """

    samples: list[Sample]
    began_at_s: float
    wall_s: float
    cpu_s: dict[str, float]
    client_cpu: float
    foreign_cpu: float

    @property
    def first_ms(self) -> list[float]:
        """Milliseconds from the request to its first text, each request."""
        return [sample.frames_s[0] * 1000 for sample in self.samples if sample.frames_s]

    @property
    def gaps_ms(self) -> list[float]:
        """Milliseconds between a frame and the next, all requests."""
        return [
            (later - earlier) * 1000
            for sample in self.samples
            for earlier, later in zip(sample.frames_s, sample.frames_s[1:], strict=False)
        ]

    @property
    def token_ms(self) -> list[float]:
        """Mean milliseconds for each token after the first, each request."""
        return [
            (sample.frames_s[-1] - sample.frames_s[0]) * 1000 / (sample.output_tokens - 1)
            for sample in self.samples
            if sample.frames_s and sample.output_tokens > 1
        ]

    @property
    def tokens(self) -> int:
        """Tokens of all answers, by the servers' own count."""
        return sum(sample.output_tokens for sample in self.samples)

    @property
    def tokens_per_s(self) -> float:
        """Tokens of all requests together."""
        return self.tokens / self.wall_s

    @property
    def cached_share(self) -> float:
        """How much of all prompts was in the cache, by the servers' own count, from 0 to 1."""
        cached_tokens = sum(sample.cached_tokens for sample in self.samples)
        return cached_tokens / sum(sample.prompt_tokens for sample in self.samples)

    @property
    def requests_per_s(self) -> float:
        """Answers, whole or not."""
        return len(self.samples) / self.wall_s

    @property
    def is_sound(self) -> bool:
        """Whether the client used so little that the figures are the server's."""
        return self.client_cpu <= _CLIENT_LIMIT

    def problems(self, tokens: int | None) -> list[str]:
        """Say what was wrong: with an answer that has not `tokens` tokens, or with the rig.

        None: every answer has a limit of its own, and must have reached it.
        """
        found = [sample.error for sample in self.samples if sample.error]
        whole = [sample for sample in self.samples if not sample.error]
        short = [s.output_tokens for s in whole if s.output_tokens != tokens]
        if tokens is None:
            early = sum(sample.stop_reason != "max_tokens" for sample in whole)
            found += [f"{early} answers ended before their limit"] if early else []
        elif short:
            found.append(f"{len(short)} answers have {short[0]} tokens or so, not {tokens}")
        if not self.is_sound:
            found.append(f"the client used {self.client_cpu:.0%} of a core: not trustworthy")
        return found


def run_round(
    arm: Arm, bodies: list[dict[str, Any]], concurrency: int, spacing_s: float = 0
) -> Round:
    """Send every body to the arm, in a client process of its own.

    Raises `RuntimeError` if not one answer was whole: there is nothing to compare then.
    """
    return _run(arm, bodies, concurrency=concurrency, spacing_s=spacing_s)


def run_trace(arm: Arm, bodies: list[dict[str, Any]], at_s: list[float]) -> Round:
    """Send each body when it is due, whatever became of those before. As `run_round` otherwise."""
    return _run(arm, bodies, at_s=at_s)


def _run(arm: Arm, bodies: list[dict[str, Any]], **when: Any) -> Round:
    load = Load(
        port=arm.port,
        path=arm.path,
        headers=arm.headers,
        bodies=[body | {"model": arm.model} for body in bodies],
        **when,
    )
    before = {name: _tree_cpu_s(pid) for name, pid in arm.processes.items()}
    machine_before = psutil.cpu_times()
    taken = take(load)
    machine = psutil.cpu_times()
    if all(sample.error for sample in taken.samples):
        raise RuntimeError(f"{arm.name} gave no whole answer: {taken.samples[0].error}")
    cpu_s = {name: _tree_cpu_s(pid) - before[name] for name, pid in arm.processes.items()}
    ours_s = sum(cpu_s.values()) + taken.process_cpu_s
    return Round(
        samples=taken.samples,
        began_at_s=taken.began_at_s,
        wall_s=taken.wall_s,
        cpu_s=cpu_s,
        client_cpu=taken.client_cpu_s / taken.wall_s,
        foreign_cpu=_foreign(machine_before, machine, ours_s),
    )


class Named(Protocol):
    """What takes part in rounds: a server, or what is done with one."""

    @property
    def name(self) -> str:
        """What it is called in the report."""


Rounds = dict[str, list[Round]]
A = TypeVar("A", bound=Named)
T = TypeVar("T")


def in_turn(arms: Sequence[A], rounds: int, run: Callable[[A, int], T]) -> dict[str, list[T]]:
    """Run the arms one after the other, the order reversed each time, so that drift cancels."""
    taken: dict[str, list[T]] = {arm.name: [] for arm in arms}
    for number in range(rounds):
        for arm in arms if number % 2 == 0 else reversed(arms):
            taken[arm.name].append(run(arm, number))
    return taken


@dataclass(frozen=True)
class Spread:
    """A figure's median over the rounds, with the lowest and the highest."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Sum up one value for each round."""
        ordered = sorted(values)
        return cls(statistics.median(ordered), ordered[0], ordered[-1])


def over_pairs(by_round: Sequence[float]) -> float:
    """Return the median over pairs of rounds, in which each arm went first once."""
    pairs = zip(by_round[::2], by_round[1::2], strict=True)
    return statistics.median(statistics.mean(pair) for pair in pairs)


def percentile(values: Iterable[float], share: float) -> float:
    """Return the value below which `share` of them lie, interpolated; 0 for no values."""
    ordered = sorted(values)
    if not ordered:
        return 0.0
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _tree_cpu_s(pid: int) -> float:
    """CPU seconds of a process and its living descendants."""
    process = psutil.Process(pid)
    spent_s = 0.0
    for member in [process, *process.children(recursive=True)]:
        # A backend of PostgreSQL, say, may end just then.
        with suppress(psutil.NoSuchProcess):
            times = member.cpu_times()
            spent_s += times.user + times.system
    return spent_s


def _foreign(before: Any, after: Any, ours_s: float) -> float:
    """Return the share of all cores' time that was spent, but not by us."""
    all_s = sum(after) - sum(before)
    idle_s = after.idle + after.iowait - before.idle - before.iowait
    return float(max(0.0, all_s - idle_s - ours_s) / all_s)
