"""The prefix cache: how much sooner a repeated long prefix is answered, and to whom."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from inference.transport.frames import EngineState
from tests.acceptance.stack import Stack
from tests.benchmarks import arms
from tests.benchmarks.report import Aim, Section, Table, show
from tests.benchmarks.rounds import Arm, Round, Spread, in_turn, over_pairs, percentile, run_round

_ROUNDS, _QUICK_ROUNDS = 4, 2
_TOKENS = 8
# About 6,000 tokens of the default model.
_RULES = 350
_QUESTIONS = (
    "Tell me a very long story about a dragon and a lighthouse.",
    "Tell me a very long story about two friends and a river.",
    "Tell me a very long story about a king who could not sleep.",
    "Tell me a very long story about the last train to the sea.",
)
_SOONER = 5
_CACHED_SHARE = 0.9
_FIRST_TOKEN_MS = 15

_METHOD = """\
Streaming `/v1/messages` of {model}, temperature 0, one request at a time: a system prompt of about
6,000 tokens, marked with `cache_control`, and a short question. Each round has a system prompt that
no other round has. It is asked for the *first* time, then *again* with three other questions, then
with the first question by *another team*: with another team's key of Tandem, with another
`cache_salt` of vLLM. *vLLM* is `python -m vllm.entrypoints.openai.api_server` with exactly the
engine arguments and the environment of Tandem's worker, and `--enable-prompt-tokens-details`. Both
servers are up all the time and serve in turn, the order reversed each round. First token is from
the request's first byte to the first frame with text; *cached* is the share of the prompt's tokens
that `cache_read_input_tokens` counts."""


@dataclass(frozen=True, kw_only=True)
class _Team:
    """How a server is told who asks: by a key, or by a field."""

    headers: dict[str, str]
    fields: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class _Visit:
    """One prefix on one server."""

    first: Round
    again: Round
    stranger: Round

    @property
    def sooner(self) -> float:
        """How many times sooner the first token comes again, at the median."""
        return _first_ms(self.first) / _first_ms(self.again)


_Visits = dict[str, list[_Visit]]
_Teams = dict[str, tuple[_Team, _Team]]


def measure(stack: Stack, *, quick: bool) -> Section:
    """Ask both servers for long prefixes, again and again."""
    stack.manage("fetch_model")
    arguments = arms.vllm_arguments(stack)
    section = Section("The prefix cache", _METHOD.format(model=arguments.model))
    with arms.vllm(stack, arguments, "--enable-prompt-tokens-details") as theirs:
        ours = arms.tandem(stack, arguments.model, until=EngineState.LOADING)
        teams: _Teams = {
            ours.name: (_with_key(stack.key), _with_key(_key_of_another_team(stack))),
            theirs.name: (_with_salt("one"), _with_salt("another")),
        }
        for arm in (ours, theirs):
            _ask(arm, teams[arm.name][0], "You tell stories.", _QUESTIONS)
        visits = in_turn(
            [ours, theirs],
            _QUICK_ROUNDS if quick else _ROUNDS,
            lambda arm, number: _visit(arm, teams[arm.name], number),
        )
    for what, some in _by_step(visits):
        section.check(what, some, _TOKENS)
    section.tables.append(_table(visits))
    section.aims += _aims(visits)
    return section


def _with_key(key: str) -> _Team:
    return _Team(headers={"x-api-key": key}, fields={})


def _with_salt(salt: str) -> _Team:
    return _Team(headers={}, fields={"cache_salt": salt})


def _key_of_another_team(stack: Stack) -> str:
    return stack.manage("create_api_key", "stranger", "--team", "strangers").strip()


def _visit(arm: Arm, teams: tuple[_Team, _Team], number: int) -> _Visit:
    owner, stranger = teams
    rules = " ".join(f"Rule {rule}: page {rule * 7} is for readers only." for rule in range(_RULES))
    system = f"Handbook {number}. {rules}"
    return _Visit(
        first=_ask(arm, owner, system, _QUESTIONS[:1]),
        again=_ask(arm, owner, system, _QUESTIONS[1:]),
        stranger=_ask(arm, stranger, system, _QUESTIONS[:1]),
    )


def _ask(arm: Arm, team: _Team, system: str, questions: tuple[str, ...]) -> Round:
    marked = {"type": "text", "text": system, "cache_control": {"type": "ephemeral"}}
    bodies: list[dict[str, Any]] = [
        {
            "max_tokens": _TOKENS,
            "stream": True,
            "temperature": 0,
            "system": [marked],
            "messages": [{"role": "user", "content": question}],
            **team.fields,
        }
        for question in questions
    ]
    return run_round(replace(arm, headers=team.headers), bodies, 1)


def _first_ms(taken: Round) -> float:
    return percentile(taken.first_ms, 0.5)


def _by_step(visits: _Visits) -> Iterator[tuple[str, dict[str, list[Round]]]]:
    for step in ("first", "again", "stranger"):
        yield step, {arm: [getattr(visit, step) for visit in some] for arm, some in visits.items()}


def _table(visits: _Visits) -> Table:
    ours, theirs = visits["Tandem"], visits["vLLM"]
    rows = [
        _row("first time, first token, ms", ours, theirs, lambda visit: _first_ms(visit.first)),
        _row("again, first token, ms", ours, theirs, lambda visit: _first_ms(visit.again)),
        _row("another team, first token, ms", ours, theirs, lambda v: _first_ms(v.stranger)),
        _row("sooner again, times", ours, theirs, lambda visit: visit.sooner),
        _row("first time, cached, %", ours, theirs, lambda v: v.first.cached_share * 100),
        _row("again, cached, %", ours, theirs, lambda visit: visit.again.cached_share * 100),
        _row("another team, cached, %", ours, theirs, lambda v: v.stranger.cached_share * 100),
    ]
    tokens = statistics.median(s.prompt_tokens for visit in ours for s in visit.first.samples)
    title = f"Prompts of {tokens:,.0f} tokens ({len(ours)} prefixes, each asked 5 times)"
    return Table(title, ["", "Tandem", "vLLM", "Tandem / vLLM, by round"], rows)


def _row(
    name: str, ours: list[_Visit], theirs: list[_Visit], figure: Callable[[_Visit], float]
) -> list[str]:
    mine, other = list(map(figure, ours)), list(map(figure, theirs))
    by_round = [a / b for a, b in zip(mine, other, strict=True) if b]
    ratio = show(Spread.of(by_round), 3) if by_round else "-"
    return [name, show(Spread.of(mine)), show(Spread.of(other)), ratio]


def _aims(visits: _Visits) -> Iterator[Aim]:
    ours, theirs = visits["Tandem"], visits["vLLM"]
    sooner = Spread.of(visit.sooner for visit in ours)
    yield Aim(
        "first token of a repeated prefix, sooner",
        f"at least {_SOONER} times",
        f"{show(sooner)} times",
        met=sooner.low >= _SOONER,
    )
    share = Spread.of(visit.again.cached_share for visit in ours)
    yield Aim(
        "share of its prompt read from the cache",
        f"at least {_CACHED_SHARE:.0%}",
        f"{share.median:.1%} ({share.low:.1%} to {share.high:.1%})",
        met=share.low >= _CACHED_SHARE,
    )
    leaked = sum(s.cached_tokens for visit in ours for s in visit.stranger.samples)
    yield Aim("of it, read by another team", "0 tokens", f"{leaked} tokens", met=leaked == 0)
    later_ms = over_pairs(
        [_first_ms(a.again) - _first_ms(b.again) for a, b in zip(ours, theirs, strict=True)]
    )
    yield Aim(
        "first token of a repeated prefix after vLLM's server's",
        f"at most {_FIRST_TOKEN_MS} ms",
        f"{later_ms:.1f} ms",
        met=later_ms <= _FIRST_TOKEN_MS,
    )
