"""What the path costs alone: the scripted engine through Tandem, and answered directly."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec
import psutil

from tests.acceptance.stack import Stack
from tests.benchmarks import arms
from tests.benchmarks.report import Aim, Section, Table, show
from tests.benchmarks.rounds import Arm, Round, Rounds, Spread, in_turn, percentile, run_round

PACE_S = 0.02
_FRAMES = 64
_STALL_MS = 200
_STREAMS = 256
_ADDED_MS = {"p50": 3, "p99": 8}

_METHOD = f"""\
Streaming `/v1/messages`, answered by the scripted engine. *Direct* is the same engine and the same
frames from the least ASGI application under the same Daphne, in one process: no key, no checks, no
queue, no worker. Both arms run in turn, after a warm-up, with the same requests from the same
client process on kept connections; what Tandem shows beyond *direct* is what the path adds. First
token is from the request's first byte to the first frame with text. Every stream is checked
for completeness. Paced streams send a token every {PACE_S * 1000:.0f} ms, in step like an
engine's."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """So many requests, some of them at once, for answers of so many tokens."""

    requests: int
    at_once: int
    tokens: int
    pace_s: float = 0

    def run(self, arm: Arm) -> Round:
        """Run it once."""
        script = msgspec.json.encode({"tokens": self.tokens, "token_delay_s": self.pace_s})
        message = {"role": "user", "content": f"script: {script.decode()}"}
        body = {"max_tokens": self.tokens, "stream": True, "messages": [message]}
        return run_round(arm, [body] * self.requests, self.at_once)


def measure(stack: Stack, *, quick: bool) -> Section:
    """Run every load against both arms."""
    model = stack.add_model("scripted", capacity=512, max_waiting=1024)
    section = Section("The path alone", _METHOD)
    with arms.direct(stack) as direct:
        pair = [arms.tandem(stack, model), direct]
        for arm in pair:
            Load(requests=400, at_once=16, tokens=16).run(arm)
            Load(requests=64, at_once=64, tokens=16, pace_s=PACE_S).run(arm)
        _alone(section, pair, quick=quick)
        busy(section, pair, quick=quick)
        paced(section, pair, quick=quick)
        _many(section, pair, quick=quick)
    return section


def _rounds(section: Section, some: Sequence[Arm], load: Load, rounds: int) -> Rounds:
    taken = in_turn(some, rounds, lambda arm, _: load.run(arm))
    section.check(f"{load.at_once} at once", taken, load.tokens)
    return taken


def _alone(section: Section, pair: list[Arm], *, quick: bool) -> None:
    """One request after the other: the added milliseconds."""
    load = Load(requests=100 if quick else 250, at_once=1, tokens=1)
    taken = _rounds(section, pair, load, rounds := 4 if quick else 8)
    tandem, direct = taken["Tandem"], taken["direct"]
    rows = []
    for share, name in ((0.5, "p50"), (0.9, "p90"), (0.99, "p99")):
        by_round = Spread.of(
            percentile(ours.first_ms, share) - percentile(theirs.first_ms, share)
            for ours, theirs in zip(tandem, direct, strict=True)
        )
        pooled = [percentile(_all_first(each), share) for each in (tandem, direct)]
        added = pooled[0] - pooled[1]
        rows.append([name, *(f"{p:.2f}" for p in (*pooled, added)), show(by_round, 2)])
        if limit := _ADDED_MS.get(name):
            aim = f"first token, added at {name}"
            section.aims.append(
                Aim(aim, f"at most {limit} ms", f"{added:.2f} ms", met=added <= limit)
            )
    title = f"First token, 1 at once, ms ({rounds} rounds of {load.requests} requests, pooled)"
    head = ["", "Tandem", "direct", "added", "added, by round"]
    section.tables.append(Table(title, head, rows))


def busy(section: Section, some: Sequence[Arm], *, quick: bool) -> None:
    """Sixteen at once, as fast as they go."""
    load = Load(requests=320 if quick else 960, at_once=16, tokens=16)
    taken = _rounds(section, some, load, 2 if quick else 4)
    rows = [
        [
            name,
            show(Spread.of(each.requests_per_s for each in rounds), 0),
            show(Spread.of(percentile(each.first_ms, 0.5) for each in rounds)),
            show(Spread.of(percentile(each.first_ms, 0.99) for each in rounds)),
            cpu(rounds, of=sum(len(each.samples) for each in rounds)),
        ]
        for name, rounds in taken.items()
    ]
    title = f"Ceiling: {load.at_once} at once, {load.tokens} tokens each, no delays"
    head = ["", "requests/s", "first token p50, ms", "p99, ms", "CPU s per 1,000 requests"]
    section.tables.append(Table(title, head, rows))


def paced(section: Section, some: Sequence[Arm], *, quick: bool) -> None:
    """A load that leaves room: what a token costs when each is a frame of its own."""
    load = Load(requests=64, at_once=32, tokens=_FRAMES, pace_s=PACE_S)
    taken = _rounds(section, some, load, 2 if quick else 4)
    rows = [
        [
            name,
            show(Spread.of(percentile(each.gaps_ms, 0.5) for each in rounds)),
            show(Spread.of(percentile(each.gaps_ms, 0.99) for each in rounds)),
            cpu(rounds, of=sum(each.tokens for each in rounds)),
        ]
        for name, rounds in taken.items()
    ]
    title = f"Paced: {load.at_once} streams at once, {load.tokens} tokens each"
    head = ["", "between tokens p50, ms", "p99, ms", "CPU s per 1,000 tokens"]
    section.tables.append(Table(title, head, rows))


def _many(section: Section, pair: list[Arm], *, quick: bool) -> None:
    """The many streams that one gateway process must carry, all begun at the same moment."""
    load = Load(requests=_STREAMS, at_once=_STREAMS, tokens=_FRAMES, pace_s=PACE_S)
    taken = _rounds(section, pair, load, 2 if quick else 4)
    rows = [
        [
            name,
            f"{_whole(some)} of {len(some) * load.requests}",
            str(sum(gap > _STALL_MS for each in some for gap in each.gaps_ms)),
            show(Spread.of(max(each.gaps_ms, default=0) for each in some), 0),
            show(Spread.of(percentile(each.gaps_ms, 0.99) for each in some), 0),
            show(Spread.of(percentile(each.first_ms, 0.5) for each in some), 0),
            show(Spread.of(percentile(each.first_ms, 0.99) for each in some), 0),
            show(Spread.of(each.tokens_per_s for each in some), 0),
        ]
        for name, some in taken.items()
    ]
    title = f"{load.at_once} streams at once, {load.tokens} tokens each"
    head = ["", "whole", f"gaps over {_STALL_MS} ms", "longest gap, ms", "gap p99, ms"]
    head += ["first token p50, ms", "p99, ms", "frames/s"]
    section.tables.append(Table(title, head, rows))
    gateway_mib = psutil.Process(pair[0].processes["gateway"]).memory_info().rss / 2**20
    memory = Table("Memory after all of this", ["", "MiB"], [["gateway", f"{gateway_mib:.0f}"]])
    section.tables.append(memory)
    section.aims.append(_many_aim(taken["Tandem"], load.requests))


def _many_aim(rounds: list[Round], streams: int) -> Aim:
    longest_ms = max((gap for each in rounds for gap in each.gaps_ms), default=0.0)
    broken = len(rounds) * streams - _whole(rounds)
    return Aim(
        f"{streams} streams of {_FRAMES} frames at {PACE_S * 1000:.0f} ms",
        f"no gap over {_STALL_MS} ms",
        f"longest {longest_ms:.0f} ms, {broken} streams broken",
        met=not broken and longest_ms <= _STALL_MS,
    )


def _whole(rounds: list[Round]) -> int:
    return sum(not sample.error for each in rounds for sample in each.samples)


def _all_first(rounds: Iterable[Round]) -> list[float]:
    return [value for each in rounds for value in each.first_ms]


def cpu(rounds: list[Round], *, of: int) -> str:
    """Return CPU seconds in all and by process, for a thousand of what `of` counts."""
    names = rounds[0].cpu_s
    spent = {name: sum(each.cpu_s[name] for each in rounds) * 1000 / of for name in names}
    shares = ", ".join(f"{name} {seconds:.3f}" for name, seconds in spent.items())
    return f"{sum(spent.values()):.3f} ({shares})"
