"""The traffic of the mix: realtime requests as a Poisson process, rows of a batch, their tokens."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from tests.benchmarks.load import Sample

ROW_TOKENS = 64
_ANSWER_TOKENS = (32, 64)
# A token each, and two more for the article and the comma: prompts of 31 to 58 tokens, without
# what the chat template adds.
_THINGS = (
    *("river", "king", "train", "garden", "ship", "mountain", "clock"),
    *("letter", "bridge", "wolf", "island", "storm", "mirror", "market", "forest", "queen"),
    *("violin", "tower", "harbour", "sparrow", "castle", "lantern"),
)
_FEWEST_THINGS, _MOST_THINGS = 1, 10


@dataclass(frozen=True)
class Trace:
    """Requests, and when each is sent, in seconds after the start."""

    at_s: list[float]
    bodies: list[dict[str, Any]]


def trace(number: int, use: int, *, mean_s: float, window_s: float) -> Trace:
    """Return streaming requests that come `mean_s` apart on average, for `window_s`.

    The same `number` always gives the same arrivals and lengths. What differs with `use` is the
    beginning of each prompt, so that no use finds the prompts of another one in a cache.
    """
    rng = random.Random(f"trace {number}")
    at_s = poisson(rng, mean_s, window_s)
    bodies = [
        {
            "max_tokens": rng.randint(*_ANSWER_TOKENS),
            "stream": True,
            "temperature": 0,
            "messages": [_message(rng, f"Tale {use:03}-{index:04}")],
        }
        for index in range(len(at_s))
    ]
    return Trace(at_s, bodies)


def poisson(rng: random.Random, mean_s: float, window_s: float) -> list[float]:
    """Return the moments of a Poisson process within a window."""
    at_s: list[float] = []
    now_s = rng.expovariate(1 / mean_s)
    while now_s < window_s:
        at_s.append(now_s)
        now_s += rng.expovariate(1 / mean_s)
    return at_s


def batch_file(rows: int, use: int, model: str) -> bytes:
    """Return a batch's input file: chat requests with prompts as in a trace, new in each use."""
    rng = random.Random("batch")
    lines = [
        {
            "custom_id": f"row-{number}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {
                "model": model,
                "max_tokens": ROW_TOKENS,
                "min_tokens": ROW_TOKENS,
                "temperature": 0,
                "messages": [_message(rng, f"Row {use:03}-{number:04}")],
            },
        }
        for number in range(rows)
    ]
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


def _message(rng: random.Random, name: str) -> dict[str, str]:
    things = rng.sample(_THINGS, rng.randint(_FEWEST_THINGS, _MOST_THINGS))
    listed = ", ".join(f"a {thing}" for thing in things)
    # Small models end lists early, but not this tale.
    tale = "Tell me a very long story about a dragon and a lighthouse."
    return {"role": "user", "content": f"{name}: we shall need {listed}. {tale}"}


class Run(NamedTuple):
    """What an engine made of one row: when, in seconds since 1970, and how many tokens."""

    first_token_s: float
    ended_s: float
    tokens: int


def tokens_within(runs: Iterable[Run], begin_s: float, end_s: float) -> float:
    """Return the tokens that came between two moments, each run's as if they came evenly.

    Rows run for much of a window, and many end together: to count those that ended within it
    would be wrong by as many as the engine runs at once.
    """
    return sum(_share(run, begin_s, end_s) * run.tokens for run in runs)


def _share(run: Run, begin_s: float, end_s: float) -> float:
    lasted_s = run.ended_s - run.first_token_s
    if lasted_s <= 0:
        return float(begin_s <= run.ended_s < end_s)
    within_s = min(run.ended_s, end_s) - max(run.first_token_s, begin_s)
    return max(0.0, within_s) / lasted_s


def tokens_until(samples: Iterable[Sample], end_s: float) -> float:
    """Return the tokens that clients had until so many seconds after the load's start."""
    tokens = 0.0
    for sample in samples:
        had = sum(sample.sent_s + frame_s <= end_s for frame_s in sample.frames_s)
        tokens += sample.output_tokens * had / max(1, len(sample.frames_s))
    return tokens
