"""What the path costs alone: the scripted engine through Tandem, and answered directly."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import psutil

from tests.acceptance.stack import Stack
from tests.benchmarks import arms
from tests.benchmarks.report import Aim, Section, Table, show
from tests.benchmarks.rounds import Arm, Round, Spread, in_turn, percentile, run_round

_PACE_S = 0.02
_FRAMES = 64
_STALL_MS = 200
_STREAMS = 256

_METHOD = f"""\
Streaming `/v1/messages`, answered by the scripted engine. *Direct* is the same engine and the same
frames from the least ASGI application under the same Daphne, in one process: no key, no checks, no
queue, no worker. Both arms run in turn, after a warm-up, with the same requests from the same
client process on kept connections; what Tandem shows beyond *direct* is what the path adds. First
token is from the request's first byte to the first frame with text. Every stream is checked
for completeness. Paced streams send a token every {_PACE_S * 1000:.0f} ms, in step like an
engine's."""


def measure(stack: Stack, *, quick: bool) -> Section:
    """Run every scenario against both arms."""
    model = stack.add_model("scripted", capacity=512, max_waiting=1024)
    with arms.direct(stack) as direct:
        pair = [arms.tandem(stack, model), direct]
        for arm in pair:
            run_round(arm, _bodies(800 if not quick else 200, tokens=16), 16)
            run_round(arm, _bodies(64, tokens=16, pace_s=_PACE_S), 64)
        section = Section("The path alone", _METHOD)
        _alone(section, pair, quick=quick)
        _busy(section, pair, quick=quick)
        _paced(section, pair, quick=quick)
        _many(section, pair, quick=quick)
    return section


def _alone(section: Section, pair: list[Arm], *, quick: bool) -> None:
    """One request after the other: the added milliseconds."""
    count, rounds = (100, 4) if quick else (250, 8)
    taken = in_turn(pair, rounds, lambda arm, _: run_round(arm, _bodies(count, tokens=1), 1))
    section.check("1 at once", taken, tokens=1)
    tandem, direct = taken["Tandem"], taken["direct"]
    rows = []
    added = {}
    for share, name in ((0.5, "p50"), (0.9, "p90"), (0.99, "p99")):
        pooled = [percentile(_all_first(each), share) for each in (tandem, direct)]
        added[name] = pooled[0] - pooled[1]
        by_round = Spread.of(
            percentile(ours.first_ms, share) - percentile(theirs.first_ms, share)
            for ours, theirs in zip(tandem, direct, strict=True)
        )
        by_round_text = show(by_round, 2)
        rows.append([name, *(f"{p:.2f}" for p in pooled), f"{added[name]:.2f}", by_round_text])
    section.tables.append(
        Table(
            f"First token, 1 at once, ms ({rounds} rounds of {count} requests, pooled)",
            ["", "Tandem", "direct", "added", "added, by round"],
            rows,
        )
    )
    for name, limit in (("p50", 3), ("p99", 8)):
        aim = f"first token, added at {name}"
        section.aims.append(
            Aim(aim, f"at most {limit} ms", f"{added[name]:.2f} ms", added[name] <= limit)
        )


def _busy(section: Section, pair: list[Arm], *, quick: bool) -> None:
    """Sixteen at once, as fast as they go."""
    count, rounds = (320, 2) if quick else (960, 4)
    taken = in_turn(pair, rounds, lambda arm, _: run_round(arm, _bodies(count, tokens=16), 16))
    section.check("16 at once", taken, tokens=16)
    rows = [
        [
            name,
            show(Spread.of(each.requests_per_s for each in some), 0),
            show(Spread.of(percentile(each.first_ms, 0.5) for each in some)),
            show(Spread.of(percentile(each.first_ms, 0.99) for each in some)),
            _cpu(some, per=1000, of=sum(len(each.samples) for each in some)),
        ]
        for name, some in taken.items()
    ]
    section.tables.append(
        Table(
            "Ceiling: 16 at once, 16 tokens each, no delays",
            ["", "requests/s", "first token p50, ms", "p99, ms", "CPU s per 1,000 requests"],
            rows,
        )
    )


def _paced(section: Section, pair: list[Arm], *, quick: bool) -> None:
    """A load that leaves room: what a token costs when it travels alone."""
    rounds = 2 if quick else 4
    taken = in_turn(
        pair, rounds, lambda arm, _: run_round(arm, _bodies(64, tokens=_FRAMES, pace_s=_PACE_S), 32)
    )
    section.check("32 paced", taken, tokens=_FRAMES)
    rows = [
        [
            name,
            show(Spread.of(percentile(each.gaps_ms, 0.5) for each in some)),
            show(Spread.of(percentile(each.gaps_ms, 0.99) for each in some)),
            _cpu(some, per=1000, of=sum(each.tokens for each in some)),
        ]
        for name, some in taken.items()
    ]
    section.tables.append(
        Table(
            f"Paced: 32 streams at once, {_FRAMES} tokens each",
            ["", "between tokens p50, ms", "p99, ms", "CPU s per 1,000 tokens"],
            rows,
        )
    )


def _many(section: Section, pair: list[Arm], *, quick: bool) -> None:
    """The many streams that one gateway process must carry, all begun at the same moment."""
    rounds = 2 if quick else 4
    bodies = _bodies(_STREAMS, tokens=_FRAMES, pace_s=_PACE_S)
    taken = in_turn(pair, rounds, lambda arm, _: run_round(arm, bodies, _STREAMS))
    section.check(f"{_STREAMS} paced", taken, tokens=_FRAMES)
    rows = []
    for name, some in taken.items():
        stalls = sum(gap > _STALL_MS for each in some for gap in each.gaps_ms)
        rows.append(
            [
                name,
                f"{sum(not s.error for each in some for s in each.samples)} of {rounds * _STREAMS}",
                str(stalls),
                show(Spread.of(max(each.gaps_ms, default=0) for each in some), 0),
                show(Spread.of(percentile(each.gaps_ms, 0.99) for each in some), 0),
                show(Spread.of(percentile(each.first_ms, 0.5) for each in some), 0),
                show(Spread.of(percentile(each.first_ms, 0.99) for each in some), 0),
                show(Spread.of(each.tokens_per_s for each in some), 0),
            ]
        )
    head = ["", "whole", f"gaps over {_STALL_MS} ms", "longest gap, ms", "gap p99, ms"]
    head += ["first token p50, ms", "p99, ms", "frames/s"]
    title = f"{_STREAMS} streams at once, {_FRAMES} tokens each"
    section.tables.append(Table(title, head, rows))
    gateway_mib = psutil.Process(pair[0].processes["gateway"]).memory_info().rss / 2**20
    section.tables.append(
        Table("Memory after all of this", ["", "MiB"], [["gateway", f"{gateway_mib:.0f}"]])
    )
    section.aims.append(_many_aim(taken["Tandem"]))


def _many_aim(rounds: list[Round]) -> Aim:
    longest_ms = max((gap for each in rounds for gap in each.gaps_ms), default=0.0)
    whole = all(not sample.error for each in rounds for sample in each.samples)
    return Aim(
        f"{_STREAMS} streams of {_FRAMES} frames at {_PACE_S * 1000:.0f} ms",
        f"no gap over {_STALL_MS} ms",
        f"longest {longest_ms:.0f} ms" + ("" if whole else ", streams broken"),
        whole and longest_ms <= _STALL_MS,
    )


def _bodies(count: int, *, tokens: int, pace_s: float = 0.0) -> list[dict[str, Any]]:
    script = msgspec.json.encode({"tokens": tokens, "token_delay_s": pace_s}).decode()
    message = {"role": "user", "content": f"script: {script}"}
    return [{"max_tokens": tokens, "stream": True, "messages": [message]}] * count


def _all_first(rounds: Iterable[Round]) -> list[float]:
    return [value for each in rounds for value in each.first_ms]


def _cpu(rounds: list[Round], *, per: int, of: int) -> str:
    """Return CPU seconds in all and by process, for `per` of the things counted by `of`."""
    names = rounds[0].cpu_s
    spent = {name: sum(each.cpu_s[name] for each in rounds) * per / of for name in names}
    shares = ", ".join(f"{name} {seconds:.2f}" for name, seconds in spent.items())
    return f"{sum(spent.values()):.2f} ({shares})"
