"""What comes to the simulated engines: when, and how long prompts and answers are."""

from __future__ import annotations

import csv
import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.traffic import poisson

# A burst brings three times the mean, for so long on average, and so often that between bursts
# comes half of the mean.
_BURST, _BURST_S, _CALM, _CALM_S = 3.0, 15.0, 0.5, 60.0


class Arrival(NamedTuple):
    """A request: when it comes, in seconds after the start, and how long it is."""

    at_s: float
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, kw_only=True)
class Length:
    """Numbers of tokens: log-normal around a median, `sigma` being that of their logarithms."""

    median: int
    sigma: float
    most: int

    def draw(self, rng: random.Random) -> int:
        """Return one."""
        tokens = round(rng.lognormvariate(math.log(self.median), self.sigma))
        return max(1, min(self.most, tokens))

    @property
    def mean(self) -> float:
        """Their mean, were there no `most`."""
        return self.median * math.exp(self.sigma**2 / 2)


class Lengths(NamedTuple):
    """How long requests are. Of prompts, all have the same first `shared_tokens`."""

    prompt: Length
    output: Length
    shared_tokens: int = 0


# As in Azure's published trace of conversations (2023): prompts of 1,020 tokens in the median and
# 1,155 in the mean, answers of 129 and 211.
CONVERSATIONS = Lengths(
    prompt=Length(median=1020, sigma=0.5, most=8192),
    output=Length(median=129, sigma=0.99, most=1024),
)
# The mix of the benchmark: small prompts for a small model.
TALES = Lengths(
    prompt=Length(median=50, sigma=0.25, most=512),
    output=Length(median=48, sigma=0.2, most=64),
)


def arrivals(
    kind: str, lengths: Lengths, *, mean_s: float, window_s: float, seed: str
) -> list[Arrival]:
    """Return requests that come `mean_s` apart on average: `poisson` or `bursty`."""
    rng = random.Random(f"arrivals {seed}")
    moments = {"poisson": poisson, "bursty": bursty}[kind](rng, mean_s, window_s)
    return [Arrival(at_s, lengths.prompt.draw(rng), lengths.output.draw(rng)) for at_s in moments]


def bursty(rng: random.Random, mean_s: float, window_s: float) -> list[float]:
    """Return the moments of a Poisson process whose rate triples for some seconds at times."""
    at_s: list[float] = []
    begin_s, is_burst = 0.0, False
    while begin_s < window_s:
        lasts_s = rng.expovariate(1 / (_BURST_S if is_burst else _CALM_S))
        rate = _BURST if is_burst else _CALM
        lasts_s = min(lasts_s, window_s - begin_s)
        at_s += [begin_s + moment for moment in poisson(rng, mean_s / rate, lasts_s)]
        begin_s += lasts_s
        is_burst = not is_burst
    return at_s


def recorded(path: Path) -> list[Arrival]:
    """Read arrivals from a file: a JSON array of objects, or CSV with a heading.

    Both name `at_s`, `prompt_tokens` and `output_tokens`. Raises `ValueError` or `KeyError`.
    """
    text = path.read_text(encoding="utf-8")
    rows = json.loads(text) if path.suffix == ".json" else csv.DictReader(text.splitlines())
    found = [
        Arrival(float(row["at_s"]), int(row["prompt_tokens"]), int(row["output_tokens"]))
        for row in rows
    ]
    return sorted(found)


def work_rows(lengths: Lengths, seed: str) -> Iterator[Arrival]:
    """Yield rows of a batch for ever; when they come is not said."""
    rng = random.Random(f"rows {seed}")
    while True:
        yield Arrival(0.0, lengths.prompt.draw(rng), lengths.output.draw(rng))
