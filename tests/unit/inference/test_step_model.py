"""What is learned of an engine's steps."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.step_model import Step, StepModel

BASE_S, ROW_S, TOKEN_S, CONTEXT_S = 0.010, 0.0004, 0.0001, 0.0000005


def true_s(step: Step) -> float:
    """Return how long a step takes in the engine that these tests imagine."""
    return (
        BASE_S + ROW_S * step.rows + TOKEN_S * step.prefill_tokens + CONTEXT_S * step.context_tokens
    )


def mixed(random_: random.Random, steps: int) -> Iterator[Step]:
    """Yield steps as a busy engine makes them: rows of any length, now and then a prompt."""
    for _ in range(steps):
        rows = random_.randint(1, 32)
        prefill_tokens = random_.randint(1, 512) if random_.random() < 0.3 else 0
        yield Step(rows, prefill_tokens, rows * random_.randint(50, 2000))


def learned(steps: Iterator[Step], random_: random.Random, noise: float) -> StepModel:
    model = StepModel()
    for step in steps:
        model.learn(step, true_s(step) * random_.uniform(1 - noise, 1 + noise))
    return model


def test_it_knows_nothing_before_the_first_step() -> None:
    model = StepModel()
    assert not model.is_known
    assert model.predict(Step(8, 100, 1000)) == 0
    model.learn(Step(1), 0.01)
    assert model.is_known


@pytest.mark.parametrize("seed", range(5))
def test_it_learns_what_each_part_takes(seed: int) -> None:
    random_ = random.Random(seed)
    model = learned(mixed(random_, 2000), random_, noise=0.1)
    assert model.base_s == pytest.approx(BASE_S, rel=0.15)
    assert model.row_s == pytest.approx(ROW_S, rel=0.25)
    assert model.token_s == pytest.approx(TOKEN_S, rel=0.1)
    assert model.context_s == pytest.approx(CONTEXT_S, rel=0.25)


@pytest.mark.parametrize("seed", range(5))
def test_it_predicts_steps_that_it_has_not_seen(seed: int) -> None:
    random_ = random.Random(seed)
    model = learned(mixed(random_, 500), random_, noise=0.1)
    for step in (Step(1, 0, 300), Step(0, 200), Step(16, 64, 8000), Step(32, 0, 40_000)):
        assert model.predict(step) == pytest.approx(true_s(step), rel=0.15)


def test_a_thousand_equal_steps_leave_what_rare_ones_taught() -> None:
    random_ = random.Random(1)
    model = learned(mixed(random_, 300), random_, noise=0.05)
    for _ in range(1000):
        model.learn(Step(8, 0, 4000), true_s(Step(8, 0, 4000)) * random_.uniform(0.95, 1.05))
    for step in (Step(8, 0, 4000), Step(8, 400, 4000), Step(0, 256), Step(30, 0, 4000)):
        assert model.predict(step) == pytest.approx(true_s(step), rel=0.15)


def test_what_prompts_cost_is_known_after_an_hour_without_any() -> None:
    model = StepModel()
    prompt, row = Step(8, 256, 4000), Step(8, 0, 4000)
    for step in [prompt] * 30 + [row] * 2000:
        model.learn(step, true_s(step))
    assert model.predict(prompt) == pytest.approx(true_s(prompt), rel=0.05)
    assert model.predict(row) == pytest.approx(true_s(row), rel=0.05)


def test_one_kind_of_step_tells_of_the_others_what_may_be_expected() -> None:
    model = StepModel()
    for _ in range(100):
        model.learn(Step(1, 0, 100), 0.02)
    assert model.predict(Step(1, 0, 100)) == pytest.approx(0.02, rel=0.05)
    # More takes longer, but nowhere near as long as one after another.
    assert 0.02 < model.predict(Step(8, 0, 800)) < 2 * 0.02
    assert 0.02 < model.predict(Step(1, 64, 100)) < 8 * 0.02


def test_a_machine_that_slows_down_is_noticed() -> None:
    random_ = random.Random(2)
    model = learned(mixed(random_, 300), random_, noise=0.05)
    step = Step(8, 0, 4000)
    for _ in range(60):
        model.learn(step, 2 * true_s(step))
    assert model.predict(step) > 1.5 * true_s(step)


def test_a_step_in_which_the_machine_stood_still_spoils_little() -> None:
    random_ = random.Random(3)
    model = learned(mixed(random_, 300), random_, noise=0.05)
    step = Step(8, 0, 4000)
    model.learn(step, 30.0)
    for _ in range(16):
        model.learn(step, true_s(step))
    assert model.predict(step) == pytest.approx(true_s(step), rel=0.2)


@pytest.mark.parametrize("time_s", [0.0, 1e-5, 1e-3])
def test_a_step_that_was_measured_too_short_spoils_little(time_s: float) -> None:
    random_ = random.Random(4)
    model = learned(mixed(random_, 300), random_, noise=0.05)
    rare, usual = Step(1, 3000, 100), Step(8, 0, 4000)
    model.learn(rare, time_s)
    for _ in range(200):
        model.learn(usual, true_s(usual))
    for step in (rare, usual, Step(1, 0, 100)):
        assert model.predict(step) == pytest.approx(true_s(step), rel=0.3)


_steps = st.builds(
    Step,
    rows=st.integers(0, 256),
    prefill_tokens=st.integers(0, 8192),
    context_tokens=st.integers(0, 1_000_000),
)


@given(st.lists(st.tuples(_steps, st.floats(0, 10)), min_size=1, max_size=40))
def test_no_part_ever_takes_less_than_nothing(steps: list[tuple[Step, float]]) -> None:
    model = StepModel()
    for step, time_s in steps:
        model.learn(step, time_s)
        assert min(model.base_s, model.row_s, model.token_s, model.context_s) >= 0
