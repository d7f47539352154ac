"""What accounting costs: a key, limits, caps, a balance and the trail, or nothing of all that."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from tests.acceptance.stack import Stack, eventually
from tests.acceptance.teams import MICROS, make_member, rows, set_price
from tests.benchmarks import arms
from tests.benchmarks.path import Load, cpu
from tests.benchmarks.report import Aim, Section, Table, show
from tests.benchmarks.rounds import Arm, Round, Rounds, Spread, in_turn, percentile

_ADDED_MS = 3
_SHARE = 0.75

_METHOD = """\
Streaming `/v1/messages`, answered by the scripted engine, through two gateways of the same Tandem
in turn. *Accounted* is Tandem as it is, for a key of a prepaid team which has every kind of limit,
cap and price, with a clerk that writes ledger and audit trail to PostgreSQL meanwhile. *Bare* is
the same gateway and the same engine with everybody let in and nothing written down. Both arms run
in turn, after a warm-up, on the same cores as their client."""


def measure(stack: Stack, *, quick: bool) -> Section:
    """Run every load against both arms."""
    model = stack.add_model("scripted", capacity=512, max_waiting=1024)
    section = Section("What accounting costs", _METHOD)
    accounted = _accounted(stack, model)
    with _bare(stack, accounted) as bare:
        pair = [accounted, bare]
        for arm in pair:
            Load(requests=400, at_once=16, tokens=16).run(arm)
        _alone(section, pair, quick=quick)
        _busy(section, pair, quick=quick)
        _written(section, stack)
    return section


def _accounted(stack: Stack, model: str) -> Arm:
    set_price(stack, model)
    many = 10**9
    member = make_member(
        stack,
        prepaid=True,
        daily_spend_cap_micros=10**15,
        monthly_spend_cap_micros=10**15,
        requests_per_minute=many,
        input_tokens_per_minute=many,
        output_tokens_per_minute=many,
        max_concurrent=many,
        key={"requests_per_minute": many, "output_tokens_per_minute": many},
    )
    stack.manage("top_up", member.team_name, str(MICROS), "--nonce", "benchmark")
    clerk = stack.start_clerk()
    arm = arms.tandem(stack, model)
    return replace(
        arm,
        name="accounted",
        headers={"x-api-key": member.key},
        processes=arm.processes
        | {"clerk": clerk.process.pid, "PostgreSQL": stack.postgres.process.pid},
    )


@contextmanager
def _bare(stack: Stack, accounted: Arm) -> Iterator[Arm]:
    with arms.gateway(stack, "tests.benchmarks.bare:application") as (port, pid):
        processes = accounted.processes | {"gateway": pid}
        yield replace(accounted, name="bare", port=port, processes=processes)


def _alone(section: Section, pair: list[Arm], *, quick: bool) -> None:
    load = Load(requests=100 if quick else 250, at_once=1, tokens=1)
    taken = _rounds(section, pair, load, 4 if quick else 8)
    body = []
    for share, name in ((0.5, "p50"), (0.9, "p90"), (0.99, "p99")):
        by_round = Spread.of(
            percentile(ours.first_ms, share) - percentile(theirs.first_ms, share)
            for ours, theirs in zip(taken["accounted"], taken["bare"], strict=True)
        )
        medians = [_median(taken[arm.name], share) for arm in pair]
        body.append([name, *(f"{value:.2f}" for value in medians), show(by_round, 2)])
        if share == 0.5:
            section.aims.append(
                Aim(
                    "first token, added at p50",
                    f"under {_ADDED_MS} ms",
                    f"{by_round.median:.2f} ms",
                    met=by_round.median < _ADDED_MS,
                )
            )
    head = ["", "accounted", "bare", "added, by round"]
    section.tables.append(Table("First token, 1 at once, ms", head, body))


def _busy(section: Section, pair: list[Arm], *, quick: bool) -> None:
    load = Load(requests=320 if quick else 960, at_once=16, tokens=16)
    taken = _rounds(section, pair, load, 4 if quick else 8)
    ratio = Spread.of(
        ours.requests_per_s / theirs.requests_per_s
        for ours, theirs in zip(taken["accounted"], taken["bare"], strict=True)
    )
    body = [
        [
            name,
            show(Spread.of(each.requests_per_s for each in some), 0),
            show(Spread.of(percentile(each.first_ms, 0.5) for each in some)),
            show(Spread.of(percentile(each.first_ms, 0.99) for each in some)),
            cpu(some, of=sum(len(each.samples) for each in some)),
        ]
        for name, some in taken.items()
    ]
    body.append(["ratio", show(ratio, 2), "", "", ""])
    head = ["", "requests/s", "first token p50, ms", "p99, ms", "CPU s per 1,000 requests"]
    title = f"Ceiling: {load.at_once} at once, {load.tokens} tokens each, no delays"
    section.tables.append(Table(title, head, body))
    section.aims.append(
        Aim(
            "requests/s, of the bare path's",
            f"over {_SHARE}",
            f"{ratio.median:.2f}",
            met=ratio.median > _SHARE,
        )
    )


def _written(section: Section, stack: Stack) -> None:
    """Wait until everything is in the ledger: an arm that fell behind would have cheated."""
    eventually(lambda: stack.redis.xlen(stack.keys.records) == 0, "every record is written")
    (entries,) = rows(stack, "SELECT count(*) FROM jobs_ledgerentry WHERE kind = 'usage'")[0]
    section.tables.append(Table("Written meanwhile", ["", ""], [["usage entries", str(entries)]]))


def _rounds(section: Section, pair: list[Arm], load: Load, rounds: int) -> Rounds:
    taken = in_turn(pair, rounds, lambda arm, _: load.run(arm))
    section.check(f"{load.at_once} at once", taken, load.tokens)
    return taken


def _median(taken: list[Round], share: float) -> float:
    return statistics.median(percentile(each.first_ms, share) for each in taken)
