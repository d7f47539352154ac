"""What the path costs beside LiteLLM's proxy and Portkey's gateway, all on the same engine."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import httpx
import msgspec
import psutil

from tests.acceptance.stack import Stack
from tests.benchmarks import arms, peer_servers
from tests.benchmarks.frontier import Rung, best, closest
from tests.benchmarks.growth import delays_ms
from tests.benchmarks.load import CHAT
from tests.benchmarks.path import cpu
from tests.benchmarks.plots import line_plot
from tests.benchmarks.report import Aim, Section, Table, show
from tests.benchmarks.rounds import Arm, Round, Rounds, Spread, in_turn, percentile, run_round

_AT_ONCE = (1, 2, 4, 8, 16, 32, 64)
_AT_ONCE_QUICK = (1, 4, 16, 64)
_BOUNDS_MS = (10.0, 25.0, 50.0, 100.0, 250.0)
_TOKENS = 16
_FRAMES = 64
_PACE_S = 0.02
_FEW, _MANY = 4, 32
_STALL_MS = 200
_TIMES = 3
_ADDED_SHARE = 0.5

_METHOD = f"""\
Streaming `/v1/chat/completions`, which all of them speak without translation, with the same bodies
and the token counts asked for. *Direct* is the scripted engine behind the least ASGI application
under Daphne: no key, no checks, no queue. LiteLLM {peer_servers.LITELLM} and Portkey
{peer_servers.PORTKEY} stand in front of that very process, on kept connections of their own;
Tandem plays the same scripts in its own engine worker. Each gateway has one process, as its vendor
starts it for production, and nothing is pinned to a core. All arms run in turn, after a warm-up;
the text of every answer must be direct's.

*What each does.* Tandem looks the key up, checks limits, caps and balance, queues the request in
Valkey and records it there; the clerk, which books the records later, does not run. LiteLLM
compares the key with its master key; it has no database, so no keys of users, no budgets and no
records. Portkey hands the key on to the upstream, which does not look at it, and keeps nothing.

*Frontier*: as many requests at once as stated, answers of {_TOKENS} tokens without delays. For each
bound on the first token's p99, over all rounds, the most requests/s that kept it with every answer
whole; rounds in which the client used most of a core are left out. *First token* is from the
request's first byte to the first frame with text; *added* is an arm's percentile less direct's in
the same round. Paced streams have {_FRAMES} tokens, one each {_PACE_S * 1000:.0f} ms, which say
when they were due: the *delay* of an event is from then to its frame's arrival, the first token's
left out, in streams with a frame for each token. A *stall* is a gap of more than {_STALL_MS} ms.
Memory and CPU are of whole process trees; the upstream counts for each proxy as the worker does
for Tandem."""


@dataclass(frozen=True, kw_only=True)
class _Load:
    """So many requests, some of them at once, for answers of so many tokens."""

    requests: int
    at_once: int
    tokens: int
    paced: bool = False

    def run(self, arm: Arm) -> Round:
        """Run it once."""
        return run_round(arm, [self._body()] * self.requests, self.at_once)

    def _body(self) -> dict[str, Any]:
        script: dict[str, Any] = {"tokens": self.tokens}
        if self.paced:
            # The first token comes without waiting for the step of the others.
            script |= {"token_delay_s": _PACE_S, "first_token_delay_s": 0.001, "clock": True}
        content = f"script: {msgspec.json.encode(script).decode()}"
        return {
            "max_tokens": self.tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
            "messages": [{"role": "user", "content": content}],
        }


def measure(stack: Stack, *, quick: bool) -> Section:
    """Run every load against all arms that are to be had."""
    model = stack.add_model("scripted", capacity=512, max_waiting=1024)
    section = Section("The path beside other gateways", _METHOD)
    with _running(stack, model, section) as some:
        cold = {arm.name: _memory_mib(arm) for arm in some}
        section.tables.append(_strangers(some))
        for arm in some:
            _Load(requests=50, at_once=8, tokens=_TOKENS).run(arm)
        _frontier(section, some, quick=quick)
        _alone(section, some, quick=quick)
        _events(section, some, quick=quick)
        _streams(section, some, quick=quick)
        section.tables.append(_memory(some, cold))
    return section


@contextmanager
def _running(stack: Stack, model: str, section: Section) -> Iterator[list[Arm]]:
    """Run all arms, direct last. What cannot be installed is noted and left out."""
    with ExitStack() as running:
        direct = replace(running.enter_context(arms.direct(stack)), path=CHAT)
        peers = []
        for start in (peer_servers.litellm, peer_servers.portkey):
            try:
                peers.append(running.enter_context(start(stack, direct)))
            except peer_servers.NotInstalledError as reason:
                section.problems.append(f"not installed, so left out: {reason}")
        headers = {"authorization": f"Bearer {stack.key}"}
        tandem = replace(arms.tandem(stack, model), headers=headers, path=CHAT)
        yield [tandem, *peers, direct]


def _strangers(some: Sequence[Arm]) -> Table:
    """Ask each arm with a key that nobody has."""
    body = {"max_tokens": 1, "messages": [{"role": "user", "content": "script: {}"}]}
    rows = []
    for arm in some:
        answer = httpx.post(
            f"http://127.0.0.1:{arm.port}{arm.path}",
            headers=arm.headers | {"authorization": "Bearer sk-nobody"},
            json=body | {"model": arm.model, "stream": True},
        )
        rows.append([arm.name, str(answer.status_code)])
    return Table("A key that nobody has", ["", "status"], rows)


def _rounds(section: Section, some: Sequence[Arm], load: _Load, rounds: int) -> Rounds:
    taken = in_turn(some, rounds, lambda arm, _: load.run(arm))
    what = f"{'paced, ' if load.paced else ''}{load.at_once} at once"
    section.check(what, taken, load.tokens)
    if load.paced:
        _check_frames(section, what, taken)
    else:
        for name, other in _texts(taken):
            section.problems.append(f"{what}, {name}: {other} answers have another text")
    return taken


def _texts(taken: Rounds) -> Iterator[tuple[str, int]]:
    """Yield the arms that gave whole answers with a text that direct's first has not."""
    expected = taken["direct"][0].samples[0].text
    for name, rounds in taken.items():
        samples = [sample for each in rounds for sample in each.samples if not sample.error]
        if other := sum(sample.text != expected for sample in samples):
            yield name, other


def _check_frames(section: Section, what: str, taken: Rounds) -> None:
    """Note the streams of which `delays_ms` cannot tell, since it takes a frame for each token."""
    for name, rounds in taken.items():
        streams = sum(len(each.samples) for each in rounds)
        known = sum(len(delays_ms(each)) for each in rounds) // (_FRAMES - 1)
        if known < streams:
            section.problems.append(
                f"{what}, {name}: {streams - known} of {streams} streams had not a frame for each "
                "token, and are not in the delays"
            )


def _frontier(section: Section, some: Sequence[Arm], *, quick: bool) -> None:
    """As many requests/s as the first token's p99 allows."""
    rungs: dict[str, list[Rung]] = {arm.name: [] for arm in some}
    busiest: Rounds = {}
    tried = _AT_ONCE_QUICK if quick else _AT_ONCE
    for at_once in tried:
        requests = max(40, 3 * at_once) if quick else max(100, 6 * at_once)
        load = _Load(requests=requests, at_once=at_once, tokens=_TOKENS)
        busiest = _rounds(section, some, load, 1 if quick else 4)
        for name, rounds in busiest.items():
            if rung := Rung.of(at_once, rounds):
                rungs[name].append(rung)
    bounds = [(f"p99 within {bound_ms:.0f} ms", bound_ms) for bound_ms in _BOUNDS_MS]
    rows = [
        [name, *(_best(each, bound_ms, tried[-1]) for _, bound_ms in (*bounds, ("", math.inf)))]
        for name, each in rungs.items()
    ]
    head = ["", *(name for name, _ in bounds), "no bound"]
    section.tables.append(Table("Frontier: requests/s, at so many at once", head, rows))
    section.tables.append(_ladder(rungs, tried))
    section.plots.append(_plot(rungs))
    section.tables.append(_busiest(busiest, tried[-1]))
    if "LiteLLM" in rungs:
        section.aims += _throughput_aims(rungs["Tandem"], rungs["LiteLLM"])


def _best(rungs: Sequence[Rung], bound_ms: float, most: int) -> str:
    found = best(rungs, bound_ms)
    if found is None:
        return "none"
    # Where the last rung is the best, there may be better ones above it.
    more = " or more" if found.at_once == most else ""
    return f"{show(found.requests_per_s, 0)} at {found.at_once}{more}"


def _ladder(rungs: dict[str, list[Rung]], tried: Sequence[int]) -> Table:
    by_place = {name: {rung.at_once: rung for rung in each} for name, each in rungs.items()}
    rows = [
        [name, *(_place(places.get(at_once)) for at_once in tried)]
        for name, places in by_place.items()
    ]
    head = ["", *(str(at_once) for at_once in tried)]
    return Table("First token p99, ms, by requests at once", head, rows)


def _place(rung: Rung | None) -> str:
    if rung is None:
        return "left out"
    return f"{rung.p99_ms:,.1f}" + ("" if rung.whole else ", broken answers")


def _plot(rungs: dict[str, list[Rung]]) -> Any:
    return line_plot(
        "Requests per second beside other gateways",
        "requests at once",
        f"requests/s, {_TOKENS} tokens each",
        {
            name: [(rung.at_once, rung.requests_per_s) for rung in each]
            for name, each in rungs.items()
        },
        log_x=True,
        log_y=True,
    )


def _busiest(taken: Rounds, at_once: int) -> Table:
    rows = []
    for name, rounds in taken.items():
        samples = [sample for each in rounds for sample in each.samples]
        frames = sum(len(sample.frames_s) for sample in samples) / len(samples)
        rows.append([name, f"{frames:.1f}", cpu(rounds, of=len(samples))])
    head = ["", f"frames for {_TOKENS} tokens", "CPU s per 1,000 requests"]
    return Table(f"At {at_once} at once", head, rows)


def _throughput_aims(ours: list[Rung], theirs: list[Rung]) -> list[Aim]:
    promised = f"at least {_TIMES} times"
    aims = []
    for what, bounds_ms in (("at the closest bound", _BOUNDS_MS), ("without a bound", (math.inf,))):
        if found := closest(ours, theirs, bounds_ms):
            bound_ms, times = found
            within = "" if math.isinf(bound_ms) else f" (p99 within {bound_ms:.0f} ms)"
            seen = f"{times:.1f} times{within}"
            aim = Aim(f"requests/s of LiteLLM's, {what}", promised, seen, met=times >= _TIMES)
            aims.append(aim)
    return aims


def _alone(section: Section, some: Sequence[Arm], *, quick: bool) -> None:
    """One request after the other: what is added to the first token."""
    load = _Load(requests=40 if quick else 150, at_once=1, tokens=1)
    taken = _rounds(section, some, load, 2 if quick else 4)
    section.tables.append(_added_table("First token, 1 at once, ms", taken, _first_ms))
    if "LiteLLM" not in taken:
        return
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        ours, theirs = (
            _added(taken, arm, _first_ms, share).median for arm in ("Tandem", "LiteLLM")
        )
        section.aims.append(
            Aim(
                f"first token, added at {name}, beside LiteLLM's",
                f"less than {_ADDED_SHARE:.0%}",
                f"{ours:.2f} of {theirs:.2f} ms",
                met=ours < _ADDED_SHARE * theirs,
            )
        )


def _events(section: Section, some: Sequence[Arm], *, quick: bool) -> None:
    """Few paced streams, which leave every arm room: what is added to each event."""
    load = _Load(requests=_FEW if quick else 2 * _FEW, at_once=_FEW, tokens=_FRAMES, paced=True)
    taken = _rounds(section, some, load, 1 if quick else 4)
    title = f"Delay of an event, {_FEW} paced streams at once, ms"
    section.tables.append(_added_table(title, taken, delays_ms))


def _streams(section: Section, some: Sequence[Arm], *, quick: bool) -> None:
    """Many paced streams: are they whole, and do they flow?"""
    load = _Load(requests=_MANY if quick else 2 * _MANY, at_once=_MANY, tokens=_FRAMES, paced=True)
    taken = _rounds(section, some, load, 1 if quick else 3)
    rows = [
        [
            name,
            f"{sum(not s.error for each in rounds for s in each.samples)} of "
            f"{sum(len(each.samples) for each in rounds)}",
            str(sum(gap > _STALL_MS for each in rounds for gap in each.gaps_ms)),
            show(Spread.of(max(each.gaps_ms, default=0) for each in rounds), 0),
            show(Spread.of(percentile(each.first_ms, 0.99) for each in rounds), 0),
            show(Spread.of(max(each.token_ms, default=0) for each in rounds)),
            cpu(rounds, of=sum(each.tokens for each in rounds)),
        ]
        for name, rounds in taken.items()
    ]
    head = ["", "whole", "stalls", "longest gap, ms", "first token p99, ms"]
    head += ["slowest stream's pace, ms", "CPU s per 1,000 tokens"]
    title = f"{_MANY} paced streams at once, {_FRAMES} tokens each"
    section.tables.append(Table(title, head, rows))
    title = f"Delay of an event, {_MANY} paced streams at once, ms"
    section.tables.append(_added_table(title, taken, delays_ms))


def _first_ms(taken: Round) -> list[float]:
    return taken.first_ms


def _added(taken: Rounds, arm: str, of: Callable[[Round], list[float]], share: float) -> Spread:
    """Return an arm's percentile less direct's, by round."""
    return Spread.of(
        percentile(of(own), share) - percentile(of(bare), share)
        for own, bare in zip(taken[arm], taken["direct"], strict=True)
    )


def _added_table(title: str, taken: Rounds, of: Callable[[Round], list[float]]) -> Table:
    rows = []
    for name, rounds in taken.items():
        row = [name]
        if not all(map(of, rounds)):
            rows.append([name, *["not known"] * 4])
            continue
        for share in (0.5, 0.99):
            row.append(f"{Spread.of(percentile(of(each), share) for each in rounds).median:.2f}")
            row.append("" if name == "direct" else show(_added(taken, name, of, share), 2))
        rows.append(row)
    return Table(title, ["", "p50", "added at p50", "p99", "added at p99"], rows)


def _memory_mib(arm: Arm) -> dict[str, float]:
    """Return what each of an arm's process trees has in memory."""
    return {name: _tree_rss(pid) / 2**20 for name, pid in arm.processes.items()}


def _tree_rss(pid: int) -> int:
    root = psutil.Process(pid)
    held = 0
    for process in (root, *root.children(recursive=True)):
        # One of them may end just then.
        with suppress(psutil.NoSuchProcess):
            held += process.memory_info().rss
    return held


def _memory(some: Sequence[Arm], cold: dict[str, dict[str, float]]) -> Table:
    rows = []
    for arm in some:
        row = [arm.name]
        for held in (cold[arm.name], _memory_mib(arm)):
            each = ", ".join(f"{name} {mib:.0f}" for name, mib in held.items())
            row.append(f"{sum(held.values()):.0f} ({each})")
        rows.append(row)
    head = ["", "before the first request", "after all of this"]
    return Table("Memory, MiB", head, rows)
