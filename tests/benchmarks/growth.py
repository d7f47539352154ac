"""How the path's costs grow with the number of streams that one gateway process carries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import psutil

from tests.acceptance.stack import Stack
from tests.benchmarks import arms
from tests.benchmarks.load import Sample
from tests.benchmarks.plots import line_plot
from tests.benchmarks.report import Aim, Section, Table, show
from tests.benchmarks.rounds import Arm, Round, Rounds, Spread, in_turn, percentile, run_round

_STREAMS = (1, 8, 32, 64, 128, 256, 512)
_QUICK = (1, 32, 512)
_TOKENS = 64
_PACE_S = 0.05
# Where streams are few, each connection has some after one another.
_FEWEST_REQUESTS = 4
_BEGUN_WITHIN_S = 1.0

_METHOD = f"""\
The scripted engine sends each stream a token every {_PACE_S * 1000:.0f} ms, {_TOKENS} in all: all
streams in the same step, as an engine does. The streams of a round begin evenly over
{_BEGUN_WITHIN_S:.0f} s and then all run at once, through one gateway process and one worker;
*direct* is the same engine and the same frames from the least ASGI application under the same
server.

Each token says when its step was due, on the machine's monotonic clock. The *delay* of an event is
the time from there to the arrival of its frame at the client, whose clock is the same one: what
waits for the steps of others, late timers and the sockets are in it, in both arms. All tokens of
all streams count but the first, which comes at once and is the *first token*: from the request's
first byte to the frame. *Added* is Tandem's percentile less direct's of the same round. *Missed*
are the steps that the engine itself left out, by all streams together, because it came too late for
them. A stream is *whole* with all of its {_TOKENS} tokens, each a frame of its own,
and its end. *Memory* is the gateway's after these rounds, which come in this order."""


@dataclass(frozen=True)
class _Seen:
    """The rounds with so many streams, and the gateway's memory after them."""

    streams: int
    rounds: Rounds
    memory_mib: float

    def by_round(self, arm: str, of: Callable[[Round], list[float]], share: float) -> list[float]:
        return [percentile(of(each), share) for each in self.rounds[arm]]

    def added(self, of: Callable[[Round], list[float]], share: float) -> Spread:
        ours, theirs = (self.by_round(arm, of, share) for arm in ("Tandem", "direct"))
        return Spread.of(own - other for own, other in zip(ours, theirs, strict=True))

    def whole(self, arm: str) -> tuple[int, int]:
        """Return how many streams were whole, and of how many."""
        samples = [sample for each in self.rounds[arm] for sample in each.samples]
        return sum(map(_is_whole, samples)), len(samples)

    def cpu_s(self) -> dict[str, float]:
        """Return CPU seconds for a thousand tokens: Tandem's by process, and direct's."""
        spent_s = {}
        for arm, rounds in self.rounds.items():
            tokens = sum(each.tokens for each in rounds)
            for process in rounds[0].cpu_s:
                name = process if arm == "Tandem" else arm
                spent_s[name] = sum(each.cpu_s[process] for each in rounds) * 1000 / tokens
        return spent_s


def measure(stack: Stack, *, quick: bool) -> Section:
    """Run more and more streams against both arms."""
    model = stack.add_model("scripted", capacity=max(_STREAMS), max_waiting=1024)
    section = Section("How costs grow with streams", _METHOD)
    with arms.direct(stack) as direct:
        pair = [arms.tandem(stack, model), direct]
        for arm in pair:
            _run(arm, 64)
        seen = [
            _measure(section, pair, streams, rounds=2 if quick else 4)
            for streams in (_QUICK if quick else _STREAMS)
        ]
    _tabulate(section, seen)
    _plot(section, seen)
    section.aims.append(_aim(seen[-1]))
    return section


def _measure(section: Section, pair: list[Arm], streams: int, *, rounds: int) -> _Seen:
    taken = in_turn(pair, rounds, lambda arm, _: _run(arm, streams))
    section.check(f"{streams} streams", taken, _TOKENS)
    gateway = psutil.Process(pair[0].processes["gateway"])
    return _Seen(streams, taken, gateway.memory_info().rss / 2**20)


def _run(arm: Arm, streams: int) -> Round:
    requests = max(streams, _FEWEST_REQUESTS)
    return run_round(arm, [_body()] * requests, streams, _BEGUN_WITHIN_S / streams)


def _body() -> dict[str, Any]:
    # The first token comes without waiting for the step of the others.
    script = {
        "tokens": _TOKENS,
        "token_delay_s": _PACE_S,
        "first_token_delay_s": 0.001,
        "clock": True,
    }
    message = {"role": "user", "content": f"script: {msgspec.json.encode(script).decode()}"}
    return {"max_tokens": _TOKENS, "stream": True, "messages": [message]}


def _is_whole(sample: Sample) -> bool:
    told = (sample.output_tokens, len(sample.frames_s), len(sample.text.split()))
    return not sample.error and told == (_TOKENS, _TOKENS, _TOKENS)


def delays_ms(taken: Round) -> list[float]:
    """Return how long after its step each frame came, the first of each stream left out."""
    return [
        (sample.clock_s + frame_s - float(due_s)) * 1000
        for sample in taken.samples
        if _is_whole(sample)
        for frame_s, due_s in list(zip(sample.frames_s, sample.text.split(), strict=True))[1:]
    ]


def missed_steps(taken: Round) -> int:
    """Return how many tokens more all streams would have, had the engine kept its pace."""
    missed = 0
    for sample in taken.samples:
        if _is_whole(sample):
            _, first_s, *_, last_s = map(float, sample.text.split())
            missed += round((last_s - first_s) / _PACE_S) - (_TOKENS - 2)
    return missed


def _first_ms(taken: Round) -> list[float]:
    return taken.first_ms


def _tabulate(section: Section, seen: list[_Seen]) -> None:
    for title, of in (("Delay of an event, ms", delays_ms), ("First token, ms", _first_ms)):
        head = ["streams"]
        for name in ("p50", "p99"):
            head += [f"Tandem {name}", f"direct {name}", f"added at {name}"]
        rows = [[f"{each.streams}", *_percentiles(each, of)] for each in seen]
        section.tables.append(Table(title, head, rows))
    rows = []
    for each in seen:
        whole, of_all = each.whole("Tandem")
        missed = sum(map(missed_steps, each.rounds["Tandem"]))
        cpu = [f"{spent_s:.3f}" for spent_s in each.cpu_s().values()]
        memory = f"{each.memory_mib:.0f}"
        rows.append([f"{each.streams}", f"{whole} of {of_all}", f"{missed}", *cpu, memory])
    head = ["streams", "whole", "missed", *seen[0].cpu_s(), "memory, MiB"]
    title = "Streams of Tandem, CPU s per 1,000 events by process, memory"
    section.tables.append(Table(title, head, rows))


def _percentiles(seen: _Seen, of: Callable[[Round], list[float]]) -> list[str]:
    cells = []
    for share in (0.5, 0.99):
        both = [Spread.of(seen.by_round(arm, of, share)) for arm in ("Tandem", "direct")]
        cells += [f"{spread.median:.1f}" for spread in both]
        cells.append(show(seen.added(of, share)))
    return cells


def _plot(section: Section, seen: list[_Seen]) -> None:
    section.plots.append(
        line_plot(
            "Delay of an event over concurrent streams",
            "concurrent streams, 20 tokens/s each",
            "from the engine's step to the client, ms",
            {
                f"{arm}, {name}": [
                    (each.streams, Spread.of(each.by_round(arm, delays_ms, share))) for each in seen
                ]
                for name, share in (("p99", 0.99), ("p50", 0.5))
                for arm in ("Tandem", "direct")
            },
            log_x=True,
        )
    )
    section.plots.append(
        line_plot(
            "CPU of an event over concurrent streams",
            "concurrent streams, 20 tokens/s each",
            "CPU s per 1,000 events",
            {
                name: [(each.streams, each.cpu_s()[name]) for each in seen]
                for name in seen[0].cpu_s()
            },
            log_x=True,
            log_y=True,
        )
    )


def _aim(most: _Seen) -> Aim:
    whole, of_all = most.whole("Tandem")
    p50, p99 = (most.added(delays_ms, share).median for share in (0.5, 0.99))
    return Aim(
        f"{most.streams} streams at {1 / _PACE_S:.0f} tokens/s from one gateway process",
        "none broken",
        f"{of_all - whole} of {of_all} broken; delay of an event: {p50:.1f} ms added at p50, "
        f"{p99:.1f} ms at p99",
        met=whole == of_all,
    )
