"""Percentiles that are read from histograms, beside those of sorted lists."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.latency import BUCKETS, bucket_of, percentile_s

# A bucket's upper bound is so much above its lower one.
WIDTH = 2 ** (1 / 4)


def histogram(times_s: list[float]) -> list[int]:
    counts = [0] * BUCKETS
    for time_s in times_s:
        counts[bucket_of(time_s)] += 1
    return counts


@given(
    st.lists(st.floats(0.0011, 1000), min_size=1, max_size=200),
    st.sampled_from([0.5, 0.95, 0.99, 1.0]),
)
def test_a_percentile_is_within_a_fifth_of_the_exact_one(
    times_s: list[float], share: float
) -> None:
    exact = sorted(times_s)[math.ceil(share * len(times_s)) - 1]
    found = percentile_s(histogram(times_s), share)
    assert found is not None
    assert exact / WIDTH * 0.999 <= found <= exact * WIDTH * 1.001


def test_there_is_no_percentile_of_nothing() -> None:
    assert percentile_s([0] * BUCKETS, 0.5) is None
    assert percentile_s([], 0.5) is None


def test_percentiles_are_in_order() -> None:
    counts = histogram([0.01 * number for number in range(1, 500)])
    p50, p95, p99 = (percentile_s(counts, share) for share in (0.5, 0.95, 0.99))
    assert p50 is not None
    assert p95 is not None
    assert p99 is not None
    assert 2.1 < p50 < 2.9 < p95 < p99 < 5.9


@pytest.mark.parametrize("time_s", [-1.0, 0.0, 0.0005, 0.001])
def test_what_takes_no_time_is_in_the_first_bucket(time_s: float) -> None:
    assert bucket_of(time_s) == 0


def test_what_takes_hours_is_in_the_last_bucket() -> None:
    assert bucket_of(100_000) == BUCKETS - 1
    assert percentile_s(histogram([100_000.0]), 0.5) is not None
