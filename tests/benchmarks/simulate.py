"""A simulated fleet, run by the service's own admission and pace: which policy gives batch how
much of what realtime leaves, and what that costs realtime.

    python -m tests.benchmarks.simulate --engines 1 8 200 --trace bursty --load 0.3
    python -m tests.benchmarks.simulate --compare

The second runs the default model too, and says how far the simulation is from it.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
django.setup()

from gateway.config import load  # noqa: E402
from inference.pace import Targets  # noqa: E402
from tests.acceptance.stack import Stack  # noqa: E402
from tests.benchmarks.plots import line_plot  # noqa: E402
from tests.benchmarks.report import Aim, Section, Table  # noqa: E402
from tests.benchmarks.simulator import beside_engine  # noqa: E402
from tests.benchmarks.simulator.arrivals import (  # noqa: E402
    CONVERSATIONS,
    TALES,
    Arrival,
    Lengths,
    arrivals,
    recorded,
    work_rows,
)
from tests.benchmarks.simulator.fleet import Fleet, Setup  # noqa: E402
from tests.benchmarks.simulator.machine import CPU, H200_8B, MACHINES, Machine  # noqa: E402
from tests.benchmarks.simulator.policy import (  # noqa: E402
    PACED,
    PACED_WORK_ALONE,
    PRIORITY_ONLY,
    REALTIME_ALONE,
    STATIC_SHARE,
    WORK_ALONE,
    Policy,
)
from tests.benchmarks.simulator.tally import Tally  # noqa: E402

# The best published bar for what batch may cost realtime (Valve, 2026).
_BAR_FIRST, _BAR_GAP = 1.05, 1.02
# The pace aims at nine tenths of its targets.
_TO_THE_BAR = Policy(name="paced to the bar", targets=Targets(ttft_factor=1.05, itl_factor=1.13))
_POLICIES = (PRIORITY_ONLY, STATIC_SHARE, PACED, _TO_THE_BAR)
_LOADS = (0.02, 0.1, 0.3)
_FRONTIER = (1.13, 1.25, 1.5, 2.0, 3.0)
_BIDS_S = (None, 0.0, 0.0005)
# In all engines together about so many seconds are simulated, the first half as a warm-up.
_ENGINE_S, _LEAST_WINDOW_S, _MOST_WINDOW_S = 1600.0, 40.0, 600.0

_METHOD = """\
Simulated: engines plan each step as vLLM with our scheduler does, and the admission and the pace
that decide are the service's own. Every engine takes the next realtime request when it can start
it. A step takes {base:.1f} ms, {row:.3f} ms more for each row that decodes, {token:.3f} ms for each
token of a prompt and {context:.4f} ms for each thousand of context; an engine has {places} places
and room for {kv:,} tokens ({name}). The pace knows steps as well as it learns them from one of each
size; it learns nothing more. Requests and rows are log-normal: prompts of {prompt} tokens in the
median, answers of {output}. *Load* is what realtime takes of all engines' capacity, a request being
counted as what it costs a full engine; *of the rest* is batch's tokens/s, of what is left times
those of *{alone}*. Ratios are to *{realtime}*, for the same arrivals. Rows that end are replaced
at the next step. Not simulated: the network, and what the host does between steps.

Two things bound what any pace can leave batch at the bar of {first:.0%} and {gap:.0%}. What work
adds to a step is added to every answer in it: while realtime runs, work can have no more than that
share of the time; the rest must come from when no realtime runs, which each table tells. And a new
request waits for the step that it finds, and for the one that is planned: {base:.1f} ms each at the
least, for the weights are read in each."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A fleet and its traffic. `load` is the share of the capacity that realtime takes."""

    machine: Machine
    lengths: Lengths
    engines: int
    load: float
    trace: str = "poisson"
    bid_s: float | None = None
    seed: int = 0
    engine_s: float = _ENGINE_S

    @property
    def window_s(self) -> float:
        """How long it is simulated, with the warm-up."""
        if self.is_recorded:
            return self.arrivals()[-1].at_s + 1
        return min(_MOST_WINDOW_S, max(_LEAST_WINDOW_S, self.engine_s / self.engines))

    @property
    def is_recorded(self) -> bool:
        """Whether its trace is a file."""
        return self.trace not in ("poisson", "bursty")

    def arrivals(self) -> list[Arrival]:
        """Return its realtime requests."""
        if self.is_recorded:
            return recorded(Path(self.trace))
        prompt, output = self.lengths.prompt.mean, self.lengths.output.mean
        mean_s = self.machine.cost_s(prompt, output) / self.load / self.engines
        return arrivals(
            self.trace, self.lengths, mean_s=mean_s, window_s=self.window_s, seed=f"{self.seed}"
        )

    def run(self, policy: Policy) -> Tally:
        """Simulate it."""
        setup = Setup(
            machine=self.machine,
            engines=self.engines,
            policy=policy,
            window_s=self.window_s,
            warm_up_s=self.window_s / 2,
            bid_s=self.bid_s,
            seed=self.seed,
        )
        fleet = Fleet(setup, lambda number: work_rows(self.lengths, f"{self.seed} {number}"))
        fleet.run(self.arrivals() if policy.realtime else [])
        return fleet.tally

    def left(self) -> float:
        """Return the share of the capacity that realtime leaves, while it is measured."""
        window_s = self.window_s
        used_s = sum(
            self.machine.cost_s(arrival.prompt_tokens, arrival.output_tokens)
            for arrival in self.arrivals()
            if arrival.at_s >= window_s / 2
        )
        return 1 - used_s / (window_s / 2) / self.engines

    @property
    def title(self) -> str:
        """What it is."""
        engines = "1 engine" if self.engines == 1 else f"{self.engines} engines"
        return f"{self.machine.name}: {engines}, {self.trace}, load {self.load:.0%}"


def run_all(runs: Iterable[tuple[Scenario, Policy]]) -> list[Tally]:
    """Simulate them, on all cores."""
    scenarios, policies = zip(*runs, strict=True)
    with ProcessPoolExecutor() as pool:
        return list(pool.map(Scenario.run, scenarios, policies))


def _policy_table(scenario: Scenario, section: Section | None = None) -> Table:
    """Compare all policies; say in the section's aims whether the bar was met."""
    policies = (REALTIME_ALONE, WORK_ALONE, PACED_WORK_ALONE, *_POLICIES)
    alone, full, *mixed = run_all((scenario, policy) for policy in policies)
    rest = full.work_tokens_per_s * scenario.left()
    rows = [
        _row(REALTIME_ALONE.name, alone, alone, None, scenario),
        _row(WORK_ALONE.name, full, None, full.work_tokens_per_s, scenario),
        _row(PACED_WORK_ALONE.name, mixed[0], None, full.work_tokens_per_s, scenario),
    ]
    for policy, tally in zip(_POLICIES, mixed[1:], strict=True):
        rows.append(_row(policy.name, tally, alone, rest, scenario))
    if section is not None:
        section.aims.append(_aim(scenario, alone, mixed[-1], mixed[-1].work_tokens_per_s / rest))
    head = [
        *("", "first token p50, ms", "p99, ms", "between tokens mean, ms", "p99, ms"),
        *("batch tokens/s an engine", "of the rest", "preempted, per 1,000 requests"),
        "tokens computed in vain, per 1,000 of batch",
    ]
    busy = alone.busy_s / (alone.end_s - alone.begin_s) / scenario.engines
    return Table(f"{scenario.title}; an engine has realtime {busy:.0%} of the time", head, rows)


def _row(
    name: str, tally: Tally, alone: Tally | None, rest: float | None, scenario: Scenario
) -> list[str]:
    figures = ["", "", "", ""]
    if alone is not None:
        pairs = zip(_figures(tally), _figures(alone), strict=True)
        figures = [f"{ours:,.1f} ({ours / theirs:.2f}x)" for ours, theirs in pairs]
    if rest is None:
        return [name, *figures, "", "", "", ""]
    tokens = tally.work_tokens_per_s
    requests = max(1, tally.realtime_ended)
    return [
        name,
        *figures,
        f"{tokens / scenario.engines:,.0f}",
        f"{tokens / rest:.1%}",
        f"{tally.preemptions / requests * 1000:,.1f}" if alone else "",
        f"{tally.wasted_tokens / max(1, tally.ended_tokens) * 1000:,.1f}" if alone else "",
    ]


def _figures(tally: Tally) -> tuple[float, float, float, float]:
    return tally.first_ms(50), tally.first_ms(99), tally.gap_mean_ms, tally.gap_ms(99)


def _aim(scenario: Scenario, alone: Tally, mixed: Tally, share: float) -> Aim:
    first = mixed.first_mean_ms / alone.first_mean_ms
    gap = mixed.gap_mean_ms / alone.gap_mean_ms
    return Aim(
        f"{scenario.title}: mean first token and time between tokens, to the bar",
        f"at most {_BAR_FIRST}x and {_BAR_GAP}x",
        f"{first:.3f}x and {gap:.3f}x; batch has {share:.1%} of the rest",
        met=first <= _BAR_FIRST and gap <= _BAR_GAP,
    )


def _bid_table(scenario: Scenario) -> Table:
    """Compare who takes the next request: who waited longest, or who has the least to do."""
    arms = [
        (policy, replace(scenario, bid_s=bid_s))
        for policy in (REALTIME_ALONE, PACED)
        for bid_s in _BIDS_S
    ]
    rows = []
    for (policy, arm), tally in zip(arms, run_all((a, p) for p, a in arms), strict=True):
        bid = "none" if arm.bid_s is None else f"{arm.bid_s * 1000:g} ms"
        name = f"{policy.name}, bid {bid}"
        rows.append([name, *(f"{figure:,.1f}" for figure in _figures(tally))])
    head = ["", "first token p50, ms", "p99, ms", "between tokens mean, ms", "p99, ms"]
    return Table(f"Bidding: {scenario.title}", head, rows)


def _frontier(scenario: Scenario, section: Section) -> None:
    """Show what of the rest batch gets for how much longer a time between tokens."""
    series = {}
    for each in _LOADS:
        now = replace(scenario, load=each)
        policies = [
            Policy(name=f"{factor}", targets=Targets(ttft_factor=1.05, itl_factor=factor))
            for factor in _FRONTIER
        ]
        runs = run_all((now, policy) for policy in (REALTIME_ALONE, WORK_ALONE, *policies))
        alone, full, *taken = runs
        rest = full.work_tokens_per_s * now.left()
        series[f"load {each:.0%}"] = [
            (tally.gap_mean_ms / alone.gap_mean_ms, 100 * tally.work_tokens_per_s / rest)
            for tally in taken
        ]
    section.plots.append(
        line_plot(
            "What batch gets for how much of the time between tokens",
            "mean time between tokens, of that without batch",
            "batch tokens/s, % of what realtime leaves",
            series,
        )
    )


def measure(stack: Stack, *, quick: bool) -> Section:
    """Simulate GPU engines, and compare the simulation with the engine of this machine."""
    stack.manage("fetch_model")
    section = Section("Simulated engines", _method(H200_8B, CONVERSATIONS))
    scenario = Scenario(machine=H200_8B, lengths=CONVERSATIONS, engines=1, load=0.3)
    if quick:
        scenario = replace(scenario, engine_s=160.0)
    fleets = (1, 8) if quick else (1, 8, 200)
    for each in _LOADS:
        for engines in fleets:
            now = replace(scenario, engines=engines, load=each)
            section.tables.append(_policy_table(now, section))
    bursts = replace(scenario, engines=8, trace="bursty")
    section.tables.append(_policy_table(bursts))
    section.tables += [_bid_table(replace(scenario, engines=engines)) for engines in fleets[1:]]
    _frontier(scenario, section)
    section.tables.append(beside_engine.compare(stack.layout.models, CPU))
    return section


def _method(machine: Machine, lengths: Lengths) -> str:
    return _METHOD.format(
        base=machine.base_s * 1e3,
        row=machine.row_s * 1e3,
        token=machine.token_s * 1e3,
        context=machine.context_s * 1e6,
        places=machine.places,
        kv=machine.kv_tokens,
        name=machine.name,
        prompt=lengths.prompt.median,
        output=lengths.output.median,
        alone=WORK_ALONE.name,
        realtime=REALTIME_ALONE.name,
        first=_BAR_FIRST - 1,
        gap=_BAR_GAP - 1,
    )


def main() -> None:
    """Simulate what was asked for, and print its tables."""
    options = _options()
    if options.compare:
        print(beside_engine.compare(load().DATA_DIR / "models", CPU).markdown())
        return
    machine = replace(MACHINES[options.machine], noise=options.noise)
    lengths = TALES if machine.name == CPU.name else CONVERSATIONS
    for engines in options.engines:
        scenario = Scenario(
            machine=machine,
            lengths=lengths,
            engines=engines,
            load=options.load,
            trace=options.trace,
            seed=options.seed,
            engine_s=options.engine_s,
        )
        print(_policy_table(scenario).markdown(), end="\n\n")
        if engines > 1:
            print(_bid_table(scenario).markdown(), end="\n\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machine", choices=sorted(MACHINES), default=H200_8B.name)
    parser.add_argument("--engines", type=int, nargs="+", default=[1])
    parser.add_argument("--trace", default="poisson", help="poisson, bursty, or a CSV or JSON file")
    parser.add_argument("--load", type=float, default=0.3, help="what of the capacity is realtime")
    parser.add_argument("--noise", type=float, default=0.0, help="deviation of a step's time")
    parser.add_argument("--engine-s", type=float, default=_ENGINE_S, help="seconds of all engines")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compare", action="store_true", help="run the default model beside it")
    return parser.parse_args()


if __name__ == "__main__":
    main()
