"""Tandem beside vLLM's own API server, with the same engine and the default model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from inference.transport.frames import EngineState
from tests.acceptance.stack import Stack
from tests.benchmarks import arms
from tests.benchmarks.report import Aim, Section, Table, show
from tests.benchmarks.rounds import (
    Arm,
    Round,
    Spread,
    in_turn,
    over_pairs,
    percentile,
    run_round,
)


@dataclass(frozen=True, kw_only=True)
class _Load:
    """So many rounds of requests, some of them at once, for answers of so many tokens.

    `rounds` is even, so that each arm goes first as often as the other. Streams begin `spacing_s`
    apart.
    """

    name: str
    at_once: int
    requests: int
    tokens: int
    rounds: int
    spacing_s: float = 0


# Alone, short rounds that alternate quickly: a few milliseconds are looked for among many. Begun
# together, nearly all streams wait for the one long step that reads their prompts; begun apart,
# each meets an engine that is busy with the others. Both happen, so both are judged.
_LOADS = (
    _Load(name="1 at once", at_once=1, requests=4, tokens=24, rounds=12),
    _Load(name="8 at once", at_once=8, requests=8, tokens=64, rounds=8),
    _Load(name="32 at once", at_once=32, requests=32, tokens=64, rounds=8),
    _Load(name="8, begun apart", at_once=8, requests=8, tokens=64, rounds=6, spacing_s=0.25),
    _Load(name="32, begun apart", at_once=32, requests=32, tokens=64, rounds=6, spacing_s=0.25),
)
_QUICK_ROUNDS = 2
_THROUGHPUT = 0.95
_FIRST_TOKEN_MS = 15

_METHOD = """\
Streaming `/v1/messages` of {model}, temperature 0. *vLLM* is
`python -m vllm.entrypoints.openai.api_server` with exactly the engine arguments and the environment
of Tandem's worker:

    {flags}

Both servers are up all the time and serve in turn, the order reversed each round, each round with
new prompts that are the same for both. A server that has just been idle is slower, so aims are
judged on the median over pairs of rounds, one in each order. Streams begin together unless it says
*begun apart*: then 250 ms one after the other. Every answer must run to its `max_tokens`; tokens
are those of the servers' own `usage`. First token is from the request's first byte to the first
frame with text; between tokens is the mean of each answer after its first token."""


def measure(stack: Stack, *, quick: bool) -> Section:
    """Run every load against both servers."""
    stack.manage("fetch_model")
    arguments = arms.vllm_arguments(stack)
    # The weights' folder is this run's own: of no use to a reader.
    flags = " ".join(arguments.flags).replace(str(stack.layout.models), "MODELS")
    section = Section(
        "Beside vLLM's own server",
        _METHOD.format(model=arguments.model, flags=flags),
    )
    with arms.vllm(stack, arguments) as theirs:
        pair = [arms.tandem(stack, arguments.model, until=EngineState.LOADING), theirs]
        for arm in pair:
            run_round(arm, _bodies(8, tokens=16, number=-1), 8)
        for load in _LOADS:
            _compare(section, pair, replace(load, rounds=_QUICK_ROUNDS) if quick else load)
    return section


def _compare(section: Section, pair: list[Arm], load: _Load) -> None:
    def run(arm: Arm, number: int) -> Round:
        bodies = _bodies(load.requests, tokens=load.tokens, number=number)
        return run_round(arm, bodies, load.at_once, load.spacing_s)

    taken = in_turn(pair, load.rounds, run)
    section.check(load.name, taken, load.tokens)
    ours, theirs = taken["Tandem"], taken["vLLM"]
    rows = [
        _row("first token p50, ms", ours, theirs, lambda each: percentile(each.first_ms, 0.5)),
        _row("first token p99, ms", ours, theirs, lambda each: percentile(each.first_ms, 0.99)),
        _row("between tokens, ms", ours, theirs, lambda each: percentile(each.token_ms, 0.5)),
        _row("longest gap, ms", ours, theirs, lambda each: max(each.gaps_ms, default=0)),
        _row("tokens/s", ours, theirs, lambda each: each.tokens_per_s),
        _row(
            "CPU s per 1,000 tokens",
            ours,
            theirs,
            lambda each: sum(each.cpu_s.values()) * 1000 / each.tokens,
        ),
    ]
    section.tables.append(
        Table(
            f"{load.name} ({load.rounds} rounds of {load.requests} requests, "
            f"{load.tokens} tokens each; {_same(ours, theirs)} of "
            f"{load.rounds * load.requests} answers are the same)",
            ["", "Tandem", "vLLM", "Tandem / vLLM", "by round"],
            rows,
        )
    )
    section.aims += [
        _throughput_aim(load.name, ours, theirs),
        _first_token_aim(load.name, ours, theirs),
    ]


def _row(
    name: str, ours: list[Round], theirs: list[Round], figure: Callable[[Round], float]
) -> list[str]:
    """Return a figure of both arms, and its ratio: of the medians, and round by round."""
    mine, other = Spread.of(map(figure, ours)), Spread.of(map(figure, theirs))
    by_round = Spread.of(figure(a) / figure(b) for a, b in zip(ours, theirs, strict=True))
    ratio = f"{mine.median / other.median:.3f}"
    return [name, show(mine), show(other), ratio, show(by_round, 3)]


def _same(ours: list[Round], theirs: list[Round]) -> int:
    """Count the answers that both arms gave, word for word."""
    answers = [Counter(s.text for each in some for s in each.samples) for some in (ours, theirs)]
    return (answers[0] & answers[1]).total()


def _throughput_aim(load: str, ours: list[Round], theirs: list[Round]) -> Aim:
    ratio = over_pairs([a.tokens_per_s / b.tokens_per_s for a, b in zip(ours, theirs, strict=True)])
    name = f"tokens/s beside vLLM's server, {load}"
    return Aim(name, f"at least {_THROUGHPUT}", f"{ratio:.3f}", met=ratio >= _THROUGHPUT)


def _first_token_aim(load: str, ours: list[Round], theirs: list[Round]) -> Aim:
    later_ms = over_pairs(
        [
            percentile(a.first_ms, 0.5) - percentile(b.first_ms, 0.5)
            for a, b in zip(ours, theirs, strict=True)
        ]
    )
    name = f"first token after vLLM's server's, {load}"
    return Aim(
        name, f"at most {_FIRST_TOKEN_MS} ms", f"{later_ms:.1f} ms", met=later_ms <= _FIRST_TOKEN_MS
    )


def _bodies(requests: int, *, tokens: int, number: int) -> list[dict[str, Any]]:
    """Return requests whose prompts no other round has, so that no answer is in a cache."""
    return [
        {
            "max_tokens": tokens,
            "stream": True,
            "temperature": 0,
            "messages": [
                {
                    "role": "user",
                    "content": f"Tale {requests}-{number}-{index}: "
                    "tell me a very long story about a dragon and a lighthouse.",
                }
            ],
        }
        for index in range(requests)
    ]
