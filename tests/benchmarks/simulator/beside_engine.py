"""How far the simulation is from the engine of this machine: the same requests in both.

The engine runs in this process, without gateway, queue and database: what is compared is what is
simulated. Its steps are fitted to other requests than those that are compared.
"""

from __future__ import annotations

import asyncio
import datetime
import math
import random
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from itertools import count, cycle
from pathlib import Path
from typing import NamedTuple

import numpy as np

from inference.admission import Admission
from inference.backends.port import Tally as Used
from inference.backends.vllm import VllmBackend
from inference.catalogue import ModelEntry
from inference.events import TextDelta
from inference.pace import Targets
from inference.request import GenerationRequest, Lane, Message, Role, Sampling, TextPart
from tests.benchmarks.report import Table
from tests.benchmarks.simulator.arrivals import TALES, Arrival, arrivals
from tests.benchmarks.simulator.fleet import Fleet, Setup
from tests.benchmarks.simulator.machine import Machine
from tests.benchmarks.simulator.policy import REALTIME_ALONE, Policy
from tests.benchmarks.simulator.tally import Tally

_MODEL = "smollm2-135m-instruct"
_CACHE_GIB = 1.0
_WORDS = ("fox", "harbour", "violin", "clock", "river", "bridge", "storm", "garden")
# Realtime comes so far apart on average, for so long, after batch has filled the engine for a time.
_MEAN_S, _WINDOW_S, _WARM_UP_S = 2.5, 45.0, 15.0
# Fitted to: so many rows together, and prompts of so many words.
_TOGETHER = (1, 4, 12, 28)
_PROMPTS = (8, 64, 256)
_FEWEST_SAMPLES = 4
_FIT_TOKENS, _ROW_TOKENS = 24, 48


class Sample(NamedTuple):
    """One request as it was answered. Times are in seconds, `at_s` since the window's begin.

    Tokens of the prompt are those that were prefilled. `median_gap_s` is between tokens.
    """

    at_s: float
    first_s: float
    last_s: float
    median_gap_s: float
    prompt_tokens: int
    output_tokens: int


class _Live:
    """The engine, and the admission before it."""

    def __init__(self, backend: VllmBackend) -> None:
        self._backend = backend
        self._begin_s = time.monotonic()
        self._numbers = count()

    def begin(self) -> None:
        """Let the window begin."""
        self._begin_s = time.monotonic()

    async def ask(self, lane: Lane, words: int, tokens: int) -> Sample:
        """Send a request whose prompt no other one begins with."""
        rng = random.Random(next(self._numbers))
        text = f"{uuid.uuid4()}: " + " ".join(rng.choices(_WORDS, k=words))
        request = GenerationRequest(
            id=str(uuid.uuid4()),
            model=_MODEL,
            messages=(Message(role=Role.USER, parts=(TextPart(text),)),),
            sampling=Sampling(max_tokens=tokens, min_tokens=tokens, temperature=0),
            deadline_s=math.inf,
            lane=lane,
        )
        used, sent_s, seen_s = Used(), time.monotonic(), []
        async with aclosing(self._backend.generate(request, used)) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    seen_s.append(time.monotonic() - sent_s)
        return Sample(
            at_s=sent_s - self._begin_s,
            first_s=seen_s[0],
            last_s=seen_s[-1],
            median_gap_s=float(np.median(np.diff(seen_s))) if len(seen_s) > 1 else 0.0,
            prompt_tokens=used.prompt_tokens - used.cached_tokens,
            output_tokens=used.output_tokens,
        )


@asynccontextmanager
async def _engine(models_dir: Path, places: int) -> AsyncIterator[_Live]:
    entry = ModelEntry(
        id=_MODEL,
        display_name=_MODEL,
        aliases=(),
        backend="vllm",
        weights=_MODEL,
        context_tokens=2048,
        capacity=places,
        max_waiting=places,
        workers=1,
        engine_options={"kv_cache_gib": _CACHE_GIB},
        canary_prompt="",
        canary_expect="",
        created_at=datetime.datetime.now(datetime.UTC),
    )
    backend = VllmBackend(entry, models_dir)
    await backend.start()
    try:
        yield _Live(backend)
    finally:
        await backend.stop()


class _Fit(NamedTuple):
    """What an engine's steps take, and what each first token takes beside them."""

    machine: Machine
    path_s: float


async def _fitted(live: _Live, machine: Machine) -> _Fit:
    """Fit a machine's times to requests of batch alone, and to prompts one after another."""
    gaps_s = []
    for together in _TOGETHER:
        taken: list[Sample] = []
        while len(taken) < _FEWEST_SAMPLES:
            asked = (live.ask(Lane.BATCH, 8, _FIT_TOKENS) for _ in range(together))
            taken += await asyncio.gather(*asked)
        # Of most steps: in others some of them are prefilled.
        gaps_s.append(float(np.median([sample.median_gap_s for sample in taken])))
    # What counts is how far off a time is in proportion.
    row_s, base_s = np.polyfit(_TOGETHER, gaps_s, 1, w=1 / np.array(gaps_s))
    alone = [await live.ask(Lane.REALTIME, words, 2) for words in _PROMPTS for _ in range(3)]
    tokens, first_s = zip(*((each.prompt_tokens, each.first_s) for each in alone), strict=True)
    token_s, rest_s = np.polyfit(tokens, first_s, 1)
    fitted = replace(
        machine, base_s=float(base_s), row_s=max(0.0, float(row_s)), token_s=float(token_s)
    )
    return _Fit(fitted, float(rest_s - base_s))


def _gap_s(sample: Sample) -> float:
    return (sample.last_s - sample.first_s) / max(1, sample.output_tokens - 1)


class _Seen(NamedTuple):
    """What came of the same requests: of realtime, and tokens/s of batch."""

    realtime: Sequence[Sample]
    rows: Sequence[Sample]
    window_s: float


async def _measured(live: _Live, places: int, trace: Sequence[Arrival], *, batch: bool) -> _Seen:
    """Send a trace, with batch in all places that are not kept for realtime or without any."""
    admission = Admission(places)
    rows: list[Sample] = []

    async def row() -> None:
        rows.append(await live.ask(Lane.BATCH, 12, _ROW_TOKENS))
        admission.release(Lane.BATCH)

    async def feed(group: asyncio.TaskGroup) -> None:
        while True:
            await admission.acquire(Lane.BATCH)
            group.create_task(row())

    async def answer(arrival: Arrival) -> Sample:
        await asyncio.sleep(arrival.at_s)
        await admission.stand_by()
        admission.begin()
        sample = await live.ask(Lane.REALTIME, arrival.prompt_tokens, arrival.output_tokens)
        admission.release(Lane.REALTIME)
        return sample

    async with asyncio.TaskGroup() as group:
        if batch:
            feeding = group.create_task(feed(group))
            await asyncio.sleep(_WARM_UP_S)
        live.begin()
        taken = await asyncio.gather(*(answer(arrival) for arrival in trace))
        window_s = max(sample.at_s + sample.last_s for sample in taken)
        if batch:
            feeding.cancel()
    return _Seen(taken, rows, window_s)


def _batch_tokens_per_s(seen: _Seen) -> float:
    """Return tokens/s of batch within the window, each row's spread evenly."""
    tokens = 0.0
    for row in seen.rows:
        begin_s, end_s = row.at_s + row.first_s, row.at_s + row.last_s
        within_s = min(end_s, seen.window_s) - max(begin_s, 0.0)
        tokens += row.output_tokens * max(0.0, within_s) / (end_s - begin_s)
    return tokens / seen.window_s


def _simulated(fit: _Fit, seen: _Seen) -> Tally:
    """Replay the requests that the engine had."""
    policy = Policy(name="replay", targets=Targets()) if seen.rows else REALTIME_ALONE
    before_s = _WARM_UP_S if seen.rows else 0.0
    setup = Setup(
        machine=fit.machine,
        engines=1,
        policy=policy,
        window_s=before_s + seen.window_s,
        warm_up_s=before_s,
    )
    lengths = [Arrival(0.0, row.prompt_tokens, row.output_tokens) for row in seen.rows]
    trace = [
        Arrival(before_s + sample.at_s, sample.prompt_tokens, sample.output_tokens)
        for sample in seen.realtime
    ]
    fleet = Fleet(setup, lambda number: cycle(lengths))
    fleet.run(sorted(trace))
    return fleet.tally


async def _compare(models_dir: Path, machine: Machine) -> tuple[_Fit, list[_Seen]]:
    trace = arrivals("poisson", TALES, mean_s=_MEAN_S, window_s=_WINDOW_S, seed="beside an engine")
    async with _engine(models_dir, machine.places) as live:
        await asyncio.gather(*(live.ask(Lane.BATCH, 8, 8) for _ in range(machine.places)))
        fit = await _fitted(live, machine)
        return fit, [
            await _measured(live, machine.places, trace, batch=batch) for batch in (False, True)
        ]


def _percentile(values: Sequence[float], percent: float) -> float:
    return float(np.percentile(values, percent))


def compare(models_dir: Path, machine: Machine) -> Table:
    """Run the default model, replay the same requests, and return how far they are apart.

    Takes about three minutes, in which the engine has the machine.
    """
    fit, (alone, mixed) = asyncio.run(_compare(models_dir, machine))
    rows = []
    for name, seen in (("realtime alone", alone), ("with batch", mixed)):
        tally = _simulated(fit, seen)
        first_ms = [sample.first_s * 1000 for sample in seen.realtime]
        path_ms = fit.path_s * 1000
        gap_ms = sum(_gap_s(sample) for sample in seen.realtime) / len(first_ms) * 1000
        pairs = [
            (f"first token p{percent}, ms", _percentile(first_ms, percent), ours_ms + path_ms)
            for percent, ours_ms in ((50, tally.first_ms(50)), (99, tally.first_ms(99)))
        ]
        pairs.append(("between tokens, mean, ms", gap_ms, tally.gap_mean_ms))
        if seen.rows:
            pairs.append(("batch tokens/s", _batch_tokens_per_s(seen), tally.work_tokens_per_s))
        rows += [
            [f"{name}: {what}", f"{real:,.1f}", f"{ours:,.1f}", f"{ours / real - 1:+.0%}"]
            for what, real, ours in pairs
        ]
    now = fit.machine
    return Table(
        f"Beside the engine of this machine: a step of {now.base_s * 1e3:.0f} ms, "
        f"{now.row_s * 1e3:.1f} a row, {now.token_s * 1e3:.2f} a token of a prompt, "
        f"{fit.path_s * 1e3:+.0f} ms beside each first token",
        ["", "engine", "simulated", "off by"],
        rows,
    )
