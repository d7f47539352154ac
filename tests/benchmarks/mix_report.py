"""What the mix has shown: tables, a plot, and which aims are met."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tests.benchmarks.plots import Plot, line_plot
from tests.benchmarks.report import Aim, Section, Table, show
from tests.benchmarks.rounds import Round, Spread, percentile

IDLE = "one at a time"
ALONE = "realtime alone"
MIX = "with a batch on Tandem"
PRIORITISED = "with rows on vLLM, priorities"
PLAIN = "with rows on vLLM, no priorities"
OURS, THEIRS = "alone on Tandem", "alone through vLLM's run_batch"

_FIRST_TOKEN_TIMES = 2.5
_BETWEEN_TIMES = 2
_KEPT_SHARE = 0.5
_QUIET_SHARE = 0.95
_WORSE_TIMES = 10


@dataclass(frozen=True)
class Taken:
    """One round of realtime requests, and of a batch if there was one beside them.

    `ran_out`: all of its rows had begun before the window's end.
    """

    realtime: Round
    batch_tokens_per_s: float | None = None
    ran_out: bool = False


class Results:
    """All rounds: `taken` by what realtime requests met, `quiet` tokens/s of a batch alone, and
    `ending_quiet` the request that came after that beside a batch."""

    def __init__(
        self,
        taken: dict[str, list[Taken]],
        quiet: dict[str, list[float]],
        ending_quiet: Round,
    ) -> None:
        self.taken = taken
        self.quiet = quiet
        self.ending_quiet = ending_quiet

    def first_ms(self, arm: str, share: float) -> Spread:
        """Return a percentile of the time to the first token."""
        return self._of(arm, lambda each: each.first_ms, lambda some: percentile(some, share))

    def between_ms(self, arm: str) -> Spread:
        """Return the mean time between tokens."""
        return self._of(arm, lambda each: each.token_ms, statistics.mean)

    def gap_ms(self, arm: str) -> Spread:
        """Return the 99th percentile of the gaps between frames."""
        return self._of(arm, lambda each: each.gaps_ms, lambda some: percentile(some, 0.99))

    def batch_tokens_per_s(self, arm: str) -> Spread:
        """Return the tokens/s of the batch, beside realtime or alone."""
        beside = [each.batch_tokens_per_s or 0 for each in self.taken.get(arm, [])]
        return Spread.of(self.quiet.get(arm) or beside)

    def realtime(self, arm: str) -> list[Round]:
        """Return the rounds of realtime requests."""
        return [each.realtime for each in self.taken[arm]]

    def _of(
        self,
        arm: str,
        values: Callable[[Round], list[float]],
        figure: Callable[[Sequence[float]], float],
    ) -> Spread:
        """Return a figure of all rounds together, with that of the lowest and the highest."""
        by_round = [values(each) for each in self.realtime(arm)]
        figures = [figure(some) for some in by_round]
        return Spread(figure([v for some in by_round for v in some]), min(figures), max(figures))


def describe(section: Section, results: Results) -> None:
    """Put everything into the report's section."""
    section.check("the mix", {arm: results.realtime(arm) for arm in results.taken}, None)
    section.check("a long quiet", {"its end": [results.ending_quiet]}, None)
    for arm, rounds in results.taken.items():
        for number, each in enumerate(rounds, start=1):
            if each.ran_out:
                section.problems.append(f"{arm}, round {number}: the rows ran out within it")
    section.plots.append(_plot(results))
    section.tables += [_realtime_table(results), _quiet_table(results), _batch_table(results)]
    section.aims += _aims(results)


def _realtime_table(results: Results) -> Table:
    idle_first_ms, idle_between_ms = results.first_ms(IDLE, 0.5), results.between_ms(IDLE)
    rows = []
    for arm in results.taken:
        last_ms, between_ms = results.first_ms(arm, 0.99), results.between_ms(arm)
        rows.append(
            [
                arm,
                str(sum(len(each.samples) for each in results.realtime(arm))),
                show(results.first_ms(arm, 0.5), 0),
                show(last_ms, 0),
                f"{last_ms.median / idle_first_ms.median:.2f}",
                show(between_ms),
                f"{between_ms.median / idle_between_ms.median:.2f}",
                show(results.gap_ms(arm), 0),
            ]
        )
    head = ["", "requests", "first token p50, ms", "p99, ms", "p99, times the idle p50"]
    head += ["between tokens, ms", "times the idle one", "gap p99, ms"]
    return Table("Realtime", head, rows)


def _quiet_table(results: Results) -> Table:
    (first_ms,) = results.ending_quiet.first_ms
    times = first_ms / results.first_ms(IDLE, 0.5).median
    return Table(
        "The request that ends a long quiet, beside a batch on Tandem",
        ["requests", "first token, ms", "times the idle p50"],
        [["1", f"{first_ms:,.0f}", f"{times:.2f}"]],
    )


def _batch_table(results: Results) -> Table:
    alone = results.batch_tokens_per_s(OURS).median
    rows = []
    for arm in (MIX, PRIORITISED, PLAIN, OURS, THEIRS):
        rate = results.batch_tokens_per_s(arm)
        rows.append([arm, show(rate), f"{rate.median / alone:.0%}"])
    return Table("Batch", ["", "tokens/s", "of those alone on Tandem"], rows)


def _plot(results: Results) -> Plot:
    """Draw for each arm which share of its requests had their first token by when."""
    series = {}
    for arm in results.taken:
        ordered = sorted(ms for each in results.realtime(arm) for ms in each.first_ms)
        count = len(ordered)
        series[arm] = [(ms, place / count) for place, ms in enumerate(ordered, start=1)]
    return line_plot(
        "First token of realtime requests",
        "ms after the request",
        "share of requests",
        series,
        log_x=True,
    )


def _aims(results: Results) -> Iterator[Aim]:
    idle, last = results.first_ms(IDLE, 0.5).median, results.first_ms(MIX, 0.99).median
    yield Aim(
        "realtime first token at p99 beside a batch, of the idle engine's",
        f"at most {_FIRST_TOKEN_TIMES} times",
        f"{last / idle:.2f} times ({last:.0f} ms)",
        met=last <= _FIRST_TOKEN_TIMES * idle,
    )
    idle, beside = results.between_ms(IDLE).median, results.between_ms(MIX).median
    yield Aim(
        "realtime between tokens beside a batch, of the idle engine's",
        f"at most {_BETWEEN_TIMES} times",
        f"{beside / idle:.2f} times ({beside:.0f} ms)",
        met=beside <= _BETWEEN_TIMES * idle,
    )
    yield _kept_aim(results)
    yield _quiet_aim(results)
    for arm in (PRIORITISED, PLAIN):
        times = results.first_ms(arm, 0.99).median / last
        yield Aim(
            f"realtime first token at p99 {arm}, of Tandem's",
            f"at least {_WORSE_TIMES} times",
            f"{times:.1f} times",
            met=times >= _WORSE_TIMES,
        )


def _kept_aim(results: Results) -> Aim:
    rate, alone = (results.batch_tokens_per_s(arm).median for arm in (MIX, OURS))
    return Aim(
        "batch tokens/s beside realtime, of those alone",
        f"at least {_KEPT_SHARE:.0%}",
        f"{rate / alone:.0%}",
        met=rate >= _KEPT_SHARE * alone,
    )


def _quiet_aim(results: Results) -> Aim:
    ours, theirs = results.quiet[OURS], results.quiet[THEIRS]
    by_round = Spread.of(a / b for a, b in zip(ours, theirs, strict=True))
    return Aim(
        "batch tokens/s alone, of vLLM's run_batch's",
        f"at least {_QUIET_SHARE}",
        show(by_round, 3),
        met=by_round.median >= _QUIET_SHARE,
    )
