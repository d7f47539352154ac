"""The figures of a round, and the order of the arms."""

from __future__ import annotations

import msgspec
import pytest

from tests.benchmarks.load import Sample
from tests.benchmarks.rounds import Arm, Round, Spread, in_turn, percentile


def _sample(frames_s: list[float], *, tokens: int | None = None, error: str = "") -> Sample:
    return Sample(
        frames_s=frames_s,
        end_s=frames_s[-1] if frames_s else 0,
        text="",
        stop_reason=None,
        output_tokens=len(frames_s) if tokens is None else tokens,
        error=error,
    )


def _round(*samples: Sample, client_cpu: float = 0.1) -> Round:
    return Round(
        samples=list(samples),
        began_at_s=0,
        wall_s=2,
        cpu_s={},
        client_cpu=client_cpu,
        foreign_cpu=0,
    )


def test_it_counts_first_token_gaps_and_rates() -> None:
    taken = _round(_sample([0.1, 0.2, 0.5]), _sample([0.3, 0.3]))

    assert taken.first_ms == pytest.approx([100, 300])
    assert taken.gaps_ms == pytest.approx([100, 300, 0])
    assert taken.token_ms == pytest.approx([200, 0])
    assert taken.tokens_per_s == 2.5
    assert taken.requests_per_s == 1


def test_it_weighs_what_the_cache_had_by_tokens() -> None:
    short, long = _sample([0.1]), _sample([0.1])
    taken = _round(
        msgspec.structs.replace(short, prompt_tokens=10, cached_tokens=10),
        msgspec.structs.replace(long, prompt_tokens=90, cached_tokens=40),
    )

    assert taken.cached_share == 0.5


def test_it_leaves_out_what_a_broken_stream_never_had() -> None:
    taken = _round(_sample([], error="gone"), _sample([0.1], tokens=1))

    assert taken.first_ms == pytest.approx([100])
    assert taken.token_ms == []


def test_it_finds_broken_short_and_untrustworthy_rounds() -> None:
    assert _round(_sample([0.1, 0.2])).problems(tokens=2) == []
    assert _round(_sample([], error="gone")).problems(tokens=2) == ["gone"]
    assert "not 3" in _round(_sample([0.1, 0.2])).problems(tokens=3)[0]
    assert "client" in _round(_sample([0.1]), client_cpu=0.95).problems(tokens=1)[0]


def test_an_answer_with_a_limit_of_its_own_must_have_reached_it() -> None:
    whole = msgspec.structs.replace(_sample([0.1, 0.2]), stop_reason="max_tokens")
    early = msgspec.structs.replace(whole, stop_reason="end_turn")

    assert _round(whole, whole).problems(tokens=None) == []
    assert "1 answers ended" in _round(whole, early).problems(tokens=None)[0]


def test_it_turns_the_order_of_the_arms_round() -> None:
    arms = [Arm(name=name, port=0, model="", processes={}) for name in "ab"]
    order: list[str] = []

    def run(arm: Arm, number: int) -> Round:
        order.append(f"{arm.name}{number}")
        return _round()

    taken = in_turn(arms, 3, run)

    assert order == ["a0", "b0", "b1", "a1", "a2", "b2"]
    assert [len(each) for each in taken.values()] == [3, 3]


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([], 0.5, 0), ([7], 0.99, 7), ([3, 1, 2], 0.5, 2), ([0, 10], 0.9, 9), ([1, 2], 1, 2)],
)
def test_it_interpolates_percentiles(values: list[float], share: float, expected: float) -> None:
    assert percentile(values, share) == pytest.approx(expected)


def test_a_spread_is_the_median_and_the_extremes() -> None:
    assert Spread.of([5, 1, 2]) == Spread(2, 1, 5)
