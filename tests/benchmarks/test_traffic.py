"""The mix's traffic, and how its tokens are counted."""

from __future__ import annotations

import itertools
import json
import random
import statistics

import pytest

from tests.benchmarks.load import Sample
from tests.benchmarks.traffic import (
    ROW_TOKENS,
    Run,
    batch_file,
    poisson,
    tokens_until,
    tokens_within,
    trace,
)


def _sample(sent_s: float, frames_s: list[float], tokens: int) -> Sample:
    return Sample(
        sent_s=sent_s,
        frames_s=frames_s,
        end_s=0,
        text="",
        stop_reason="max_tokens",
        output_tokens=tokens,
        error="",
    )


def test_requests_come_as_a_poisson_process() -> None:
    at_s = poisson(random.Random(1), 2, 20_000)
    apart_s = [later - earlier for earlier, later in itertools.pairwise(at_s)]

    assert at_s == sorted(at_s)
    assert 0 < at_s[0] < at_s[-1] < 20_000
    # Of exponentials, the deviation is the mean.
    assert statistics.mean(apart_s) == pytest.approx(2, rel=0.05)
    assert statistics.stdev(apart_s) == pytest.approx(2, rel=0.05)


def test_a_trace_is_the_same_in_each_use_but_for_its_prompts_beginnings() -> None:
    one, other = (trace(3, use, mean_s=2, window_s=60) for use in (7, 8))

    assert len(one.at_s) == len(one.bodies) > 10
    assert one.at_s == other.at_s
    for mine, theirs in zip(one.bodies, other.bodies, strict=True):
        assert mine["max_tokens"] == theirs["max_tokens"]
        ours, others = (each["messages"][0]["content"] for each in (mine, theirs))
        assert ours != others
        assert ours.partition(":")[2] == others.partition(":")[2]


def test_rounds_have_other_arrivals_and_prompts() -> None:
    one, other = (trace(number, 0, mean_s=2, window_s=60) for number in (1, 2))

    assert one.at_s != other.at_s
    assert one.bodies[0] != other.bodies[0]


def test_no_prompt_is_there_twice() -> None:
    bodies = [body for use in range(3) for body in trace(0, use, mean_s=1, window_s=60).bodies]
    prompts = [body["messages"][0]["content"].partition(":")[0] for body in bodies]

    assert len(set(prompts)) == len(prompts)


def test_a_batchs_rows_are_new_in_each_use() -> None:
    one, other = (
        [json.loads(line) for line in batch_file(50, use, "m").splitlines()] for use in (1, 2)
    )

    assert [row["custom_id"] for row in one] == [f"row-{number}" for number in range(50)]
    assert {row["body"]["max_tokens"] for row in one} == {ROW_TOKENS}
    contents = [row["body"]["messages"][0]["content"] for row in one + other]
    assert len({content.partition(":")[0] for content in contents}) == 100


@pytest.mark.parametrize(
    ("run", "tokens"),
    [
        (Run(10, 20, 64), 64),  # within
        (Run(0, 8, 64), 0),  # before it
        (Run(30, 40, 64), 0),  # after it
        (Run(5, 15, 64), 32),  # over its begin
        (Run(25, 35, 60), 30),  # over its end
        (Run(0, 40, 80), 40),  # over all of it
        (Run(15, 15, 1), 1),  # at once
        (Run(30, 30, 1), 0),  # at once, at its end
    ],
)
def test_it_counts_the_tokens_of_a_window(run: Run, tokens: float) -> None:
    assert tokens_within([run], 10, 30) == pytest.approx(tokens)


def test_neighbouring_windows_make_up_the_whole() -> None:
    runs = [Run(start, start + 7.3, 64) for start in (0, 1.5, 4, 11)]

    parts = [tokens_within(runs, begin_s, begin_s + 5) for begin_s in (0, 5, 10, 15)]

    assert sum(parts) == pytest.approx(4 * 64)


def test_it_counts_what_clients_had_until_a_moment() -> None:
    whole, half, none = (
        _sample(0, [1, 2], 10),
        _sample(4, [0.5, 1.5, 2.5, 3.5], 8),
        _sample(9, [], 0),
    )

    assert tokens_until([whole, half, none], 6) == pytest.approx(10 + 4)
