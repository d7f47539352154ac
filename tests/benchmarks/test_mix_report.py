"""What the mix's report makes of its rounds."""

from __future__ import annotations

from dataclasses import astuple

import pytest

from tests.benchmarks.load import Sample
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
from tests.benchmarks.rounds import Round


def _round(*first_s: float, token_s: float) -> Round:
    """Return requests with two tokens each, the first of which came so late."""
    return Round(
        samples=[
            Sample(
                frames_s=[seconds, seconds + token_s],
                end_s=0,
                text="",
                stop_reason="max_tokens",
                output_tokens=2,
                error="",
            )
            for seconds in first_s
        ],
        began_at_s=0,
        wall_s=1,
        cpu_s={},
        client_cpu=0,
        foreign_cpu=0,
    )


def _results(*, mix_first_s: float = 0.2, mix_batch: float = 60, ran_out: bool = False) -> Results:
    """Return an idle engine's first token after 100 ms, between tokens 50 ms, and 100 tokens/s."""
    return Results(
        {
            IDLE: [Taken(_round(0.1, token_s=0.05))],
            ALONE: [Taken(_round(0.1, token_s=0.06))],
            MIX: [Taken(_round(mix_first_s, token_s=0.08), mix_batch, ran_out)],
            PRIORITISED: [Taken(_round(8, token_s=0.2), 90)],
            PLAIN: [Taken(_round(60, token_s=0.2), 95)],
        },
        {OURS: [98, 102], THEIRS: [100, 100]},
        _round(0.35, token_s=0.08),
    )


def _described(results: Results) -> Section:
    section = Section("", "")
    describe(section, results)
    return section


def test_all_aims_are_met_by_figures_within_them() -> None:
    section = _described(_results())

    assert [aim.met for aim in section.aims] == [True] * 6
    assert not section.problems
    assert len(section.tables) == 3
    assert section.tables[1].rows == [["1", "350", "3.50"]]


def test_a_late_first_token_misses_its_aims() -> None:
    section = _described(_results(mix_first_s=1))

    missed = [aim.name for aim in section.aims if not aim.met]
    assert len(missed) == 2
    assert "first token at p99 beside a batch" in missed[0]
    assert PRIORITISED in missed[1]


def test_a_starved_batch_misses_its_aim() -> None:
    section = _described(_results(mix_batch=49))

    assert [aim.name for aim in section.aims if not aim.met] == [
        "batch tokens/s beside realtime, of those alone"
    ]


def test_rows_that_ran_out_are_told() -> None:
    section = _described(_results(ran_out=True))

    assert section.problems == [f"{MIX}, round 1: the rows ran out within it"]


def test_figures_are_of_all_requests_with_the_range_of_the_rounds() -> None:
    rounds = [Taken(_round(0.1, 0.1, 0.1, token_s=0.05)), Taken(_round(0.3, token_s=0.07))]
    results = Results({IDLE: rounds}, {}, rounds[0].realtime)

    assert astuple(results.first_ms(IDLE, 0.5)) == pytest.approx((100, 100, 300))
    assert astuple(results.between_ms(IDLE)) == pytest.approx((55, 50, 70))
