"""The mix: realtime requests while a batch fills the same engine, here and on vLLM's own server."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from tests.acceptance.stack import Stack
from tests.benchmarks import arms
from tests.benchmarks.mix_arms import Mixed, Realtime, Tandem, Vllm, counting, run_batch
from tests.benchmarks.mix_report import (
    ALONE,
    IDLE,
    MIX,
    OURS,
    PLAIN,
    PRIORITISED,
    THEIRS,
    Results,
    Taken,
    describe,
)
from tests.benchmarks.report import Section
from tests.benchmarks.rounds import Arm, Round, in_turn, run_round, run_trace
from tests.benchmarks.traffic import Trace, batch_file, trace

_ROUNDS, _QUICK_ROUNDS = 3, 1
_QUIET_ROUNDS, _QUICK_QUIET_ROUNDS = 2, 1
# Alone, a request of this traffic takes about three seconds.
_MEAN_S = 3
_WINDOW_S = 40
# What the engine does before a window, within it, and some to spare.
_ROWS = 192
# A few times what the engine runs at once.
_QUIET_ROWS, _QUICK_QUIET_ROWS = 96, 64
_ONE_AT_A_TIME = 8
# vLLM's, where a lower number goes first: realtime requests have none, which is 0.
_PRIORITY = 10

# Numbers of uses that no mix comes to.
_QUIET_USES = 900
_QUIET_AFTER_S = 305
T = TypeVar("T")

_METHOD = """\
*Realtime* is streaming `/v1/messages` of {model}, temperature 0: prompts of 31 to 58 tokens and
answers of 32 to 64, sent as a Poisson process, {mean} s apart on average, for {window} s, whether
or not earlier ones are answered. A round's arrivals and lengths are the same for all arms; each
prompt begins as no other does, so that none is found in a cache. *{idle}* sends {few} of them one
after the other to Tandem with nothing beside them: what the idle engine does. A round on Tandem
begins with one that does not count, before the batch: the engine knows then that realtime is about.
What a request meets that ends a long quiet is measured apart.

The *batch* has {rows} rows with prompts of the same kind and answers of 64 tokens. On Tandem it is
a batch of OpenAI's, with a gateway, an engine worker and a clerk. To *vLLM* a client sends all rows
at once, as one does who has no queue: once with `priority` {priority}, so that realtime requests
go first, and once with no priorities. Realtime begins when the first row has ended. Batch tokens/s
are of the {window} s from there, by the audit trail of Tandem (the tokens of each row spread evenly
from its first to its end) and by vLLM's own count without those of realtime. *vLLM* is
`python -m vllm.entrypoints.openai.api_server` with exactly the engine arguments and the environment
of Tandem's worker, except that it counts (no `--disable-log-stats`):

    {flags}

*Alone* are {quiet} rows with no realtime, from the first row's start to the last row's end: on
Tandem from the moment at which the engine takes it, through
`python -m vllm.entrypoints.openai.run_batch` with the same engine arguments and the same rows from
the moment at which it opens its input, the engine being up, to that at which its output is written.
After that, {quiet_s} s and more since the last realtime request, one is sent beside another such
batch, when its first rows have ended and others begin.

First token is from the request's first byte to the first frame with text; between tokens is the
mean of each answer after its first token, and of those the mean; a gap is from one frame with text
to the next. Figures for realtime are of all rounds' requests together, in brackets the lowest and
the highest round."""


@dataclass(frozen=True)
class _Arm(Generic[T]):
    """What is done in a round of this number."""

    name: str
    run: Callable[[int], T]


def measure(stack: Stack, *, quick: bool) -> Section:
    """Run realtime and batch together on both servers, and each alone."""
    stack.manage("fetch_model")
    arguments = arms.vllm_arguments(stack)
    section = Section("Realtime and a batch on one engine", _method(stack, arguments, quick=quick))
    with arms.vllm(stack, counting(arguments)) as server:
        tandem = Tandem(stack, arguments.model)
        mixes = _Mixes(tandem, Vllm(stack, server))
        mixes.warm_up()
        rounds = _QUICK_ROUNDS if quick else _ROUNDS
        taken = in_turn(mixes.arms(), rounds, lambda arm, number: arm.run(number))
    quiet = _quiet(stack, tandem, arguments, quick=quick)
    describe(section, Results(taken, quiet, mixes.ending_quiet()))
    return section


def _method(stack: Stack, arguments: arms.VllmArguments, *, quick: bool) -> str:
    # The weights' folder is this run's own: of no use to a reader.
    flags = " ".join(counting(arguments).flags).replace(str(stack.layout.models), "MODELS")
    return _METHOD.format(
        model=arguments.model,
        mean=_MEAN_S,
        window=_WINDOW_S,
        idle=IDLE.capitalize(),
        few=_ONE_AT_A_TIME,
        rows=_ROWS,
        priority=_PRIORITY,
        flags=flags,
        quiet=_QUICK_QUIET_ROWS if quick else _QUIET_ROWS,
        quiet_s=_QUIET_AFTER_S,
    )


class _Mixes:
    """What realtime requests meet. Each use of prompts has a number of its own."""

    def __init__(self, tandem: Tandem, vllm: Vllm) -> None:
        self._tandem, self._vllm = tandem, vllm
        self._uses = itertools.count()

    def arms(self) -> list[_Arm[Taken]]:
        """Return all of them."""
        prioritised = partial(self._vllm.mixed, priority=_PRIORITY)
        return [
            _Arm(IDLE, self._one_at_a_time),
            _Arm(ALONE, lambda number: Taken(self._realtime(number, self._tandem.arm))),
            _Arm(MIX, self._mixed_on_tandem),
            _Arm(PRIORITISED, partial(self._mixed, prioritised)),
            _Arm(PLAIN, partial(self._mixed, self._vllm.mixed)),
        ]

    def warm_up(self) -> None:
        """Let both servers do some work of the kind."""
        for arm in (self._tandem.arm, self._vllm.arm):
            run_round(arm, self._some(0), _ONE_AT_A_TIME)

    def ending_quiet(self) -> Round:
        """Send one request while a batch fills Tandem's engine."""
        rows = batch_file(_QUIET_ROWS, next(self._uses), self._tandem.arm.model)
        return self._tandem.ending_quiet(rows, lambda arm: run_round(arm, self._some(0)[:1], 1))

    def _one_at_a_time(self, number: int) -> Taken:
        return Taken(run_round(self._tandem.arm, self._some(number), 1))

    def _mixed_on_tandem(self, number: int) -> Taken:
        run_round(self._tandem.arm, self._some(number)[:1], 1)
        return self._mixed(self._tandem.mixed, number)

    def _realtime(self, number: int, arm: Arm) -> Round:
        requests = self._trace(number)
        return run_trace(arm, requests.bodies, requests.at_s)

    def _mixed(self, run: Callable[[bytes, Realtime, float], Mixed], number: int) -> Taken:
        rows = batch_file(_ROWS, next(self._uses), self._tandem.arm.model)
        mixed = run(rows, partial(self._realtime, number), _WINDOW_S)
        return Taken(mixed.realtime, mixed.batch_tokens / _WINDOW_S, mixed.ran_out)

    def _some(self, number: int) -> list[dict[str, Any]]:
        return self._trace(number).bodies[:_ONE_AT_A_TIME]

    def _trace(self, number: int) -> Trace:
        return trace(number, next(self._uses), mean_s=_MEAN_S, window_s=_WINDOW_S)


def _quiet(
    stack: Stack, tandem: Tandem, arguments: arms.VllmArguments, *, quick: bool
) -> dict[str, list[float]]:
    """Run a batch alone, in turn on Tandem and through vLLM's `run_batch`. Return tokens/s."""

    def rows(number: int) -> bytes:
        count = _QUICK_QUIET_ROWS if quick else _QUIET_ROWS
        return batch_file(count, _QUIET_USES + number, arguments.model)

    pair = [
        _Arm(OURS, lambda number: tandem.alone(rows(number))),
        _Arm(THEIRS, lambda number: run_batch(stack, arguments, rows(number))),
    ]
    # Until then the engine reckons with requests, and keeps its steps short for them.
    time.sleep(_QUIET_AFTER_S)
    rounds = _QUICK_QUIET_ROUNDS if quick else _QUIET_ROUNDS
    return in_turn(pair, rounds, lambda arm, number: arm.run(number))
