"""What of work each step runs."""

from __future__ import annotations

import random
import statistics
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.pace import Demand, Pace, Share, Targets
from inference.step_model import Step

BASE_S, ROW_S, TOKEN_S, CONTEXT_S = 0.010, 0.0005, 0.0001, 0.0000005
# Below the targets, as predictions are not exact.
MARGIN = 0.9
TTFT_MARGIN = 0.6
ROWS = 28
WORK = Demand(work_rows=ROWS, work_context_tokens=ROWS * 300, work_prefill_tokens=5000)


class Engine:
    """An engine as these tests imagine it. `slowness` is that of its machine."""

    def __init__(self, targets: Targets | None = None, noise: float = 0.0, seed: int = 0) -> None:
        self.pace = Pace(targets or Targets())
        self.now_s = 1000.0
        self.slowness = 1.0
        self._noise = noise
        self._random = random.Random(seed)

    def time_s(self, step: Step) -> float:
        """Return how long a step takes without noise."""
        return self.slowness * (
            BASE_S
            + ROW_S * step.rows
            + TOKEN_S * step.prefill_tokens
            + CONTEXT_S * step.context_tokens
        )

    def share(self, demand: Demand) -> Share:
        """Ask what would run now."""
        return self.pace.share(demand, self.now_s)

    def step(self, demand: Demand) -> tuple[Share, float]:
        """Run a step; return what of work ran, and how long it took."""
        share = self.share(demand)
        step = whole(demand, share)
        time_s = self.time_s(step) * self._random.uniform(1 - self._noise, 1 + self._noise)
        self.pace.learn(step, time_s)
        self.now_s += time_s
        return share, time_s

    def warm_up(self) -> None:
        """Answer some requests alone, then run work of every size."""
        for _ in range(20):
            self.step(Demand(prefill_tokens=64))
            self.step(Demand(rows=1, context_tokens=64))
        for _ in range(600):
            rows = self._random.randint(1, ROWS)
            prefill_tokens = self._random.choice((0, 0, 0, 100, 400))
            self.step(
                Demand(
                    work_rows=rows,
                    work_context_tokens=rows * self._random.randint(50, 1000),
                    work_prefill_tokens=prefill_tokens,
                )
            )


def whole(demand: Demand, share: Share) -> Step:
    """Return the step that runs with that share of work."""
    work_context = demand.work_context_tokens * share.rows // max(1, demand.work_rows)
    return Step(
        demand.rows + share.rows,
        demand.prefill_tokens + share.prefill_tokens,
        demand.context_tokens + work_context,
    )


@pytest.fixture
def engine() -> Engine:
    made = Engine()
    made.warm_up()
    return made


def test_the_targets_are_times_of_the_idle_engine(engine: Engine) -> None:
    pace = engine.pace
    assert pace.idle_itl_s == pytest.approx(engine.time_s(Step(1)), rel=0.1)
    assert pace.idle_ttft_s == pytest.approx(engine.time_s(Step(0, 64)), rel=0.1)
    assert pace.itl_target_s == pytest.approx(2.0 * pace.idle_itl_s)
    assert pace.ttft_target_s == pytest.approx(2.5 * pace.idle_ttft_s)


def test_targets_in_milliseconds_come_before_factors() -> None:
    engine = Engine(Targets(ttft_ms=400, itl_ms=50, ttft_factor=9, itl_factor=9))
    assert (engine.pace.ttft_target_s, engine.pace.itl_target_s) == (0.4, 0.05)
    engine.warm_up()
    stats = engine.pace.stats(evictions=3)
    assert (stats.ttft_target_s, stats.itl_target_s, stats.evictions) == (0.4, 0.05, 3)
    assert stats.idle_itl_s == engine.pace.idle_itl_s


def test_the_first_token_of_longer_prompts_may_take_longer(engine: Engine) -> None:
    before_s = engine.pace.ttft_target_s
    for _ in range(100):
        engine.pace.saw_prompt(1000)
    assert engine.pace.ttft_target_s > 3 * before_s


def test_all_rows_run_while_realtime_is_quiet(engine: Engine) -> None:
    assert engine.share(WORK).rows == ROWS


def test_before_anything_is_known_everything_runs() -> None:
    demand = WORK._replace(rows=4, prefill_tokens=10)
    assert Engine().share(demand) == Share(ROWS, WORK.work_prefill_tokens)


@pytest.mark.parametrize("rows", [1, 2, 4, 8])
def test_beside_realtime_a_step_stays_below_the_target(engine: Engine, rows: int) -> None:
    demand = WORK._replace(rows=rows, context_tokens=rows * 200)
    share = engine.share(demand)
    assert share.rows > 0
    predicted_s = engine.pace.model.predict(whole(demand, share))
    assert predicted_s <= engine.pace.itl_target_s
    # What is left is used: one more row, or one more of its tokens, would be too much.
    assert predicted_s > MARGIN * engine.pace.itl_target_s - engine.pace.model.predict(Step(1))
    assert engine.time_s(whole(demand, share)) < 2.0 * engine.time_s(Step(1, 0, 200))


def test_what_rows_leave_is_for_prompts(engine: Engine) -> None:
    demand = WORK._replace(rows=1, context_tokens=200, work_rows=4, work_context_tokens=1200)
    share = engine.share(demand)
    assert share.rows == 4
    assert 0 < share.prefill_tokens < WORK.work_prefill_tokens
    assert engine.pace.model.predict(whole(demand, share)) <= engine.pace.itl_target_s


def test_nothing_of_work_runs_in_a_step_that_takes_too_long_as_it_is(engine: Engine) -> None:
    engine.share(WORK)
    assert engine.share(WORK._replace(rows=64, context_tokens=64 * 500)) == Share(0, 0)
    assert engine.share(WORK._replace(rows=1, prefill_tokens=2000)) == Share(0, 0)


def test_some_rows_run_whatever_realtime_does(engine: Engine) -> None:
    engine.share(WORK)
    demand = WORK._replace(rows=64, context_tokens=64 * 500, floor_rows=3)
    assert engine.share(demand) == Share(3, 0)
    # They are counted among those that fit.
    beside_little = WORK._replace(rows=1, context_tokens=200)
    assert engine.share(beside_little._replace(floor_rows=1)) == engine.share(beside_little)


def test_work_that_is_held_altogether_has_a_row_run_now_and_then(engine: Engine) -> None:
    busy = WORK._replace(rows=64, context_tokens=64 * 500)
    engine.share(WORK)
    ran_at_s = []
    began_at_s = engine.now_s
    while engine.now_s < began_at_s + 9:
        engine.now_s += 0.05
        if share := engine.share(busy).rows:
            assert share == 1
            ran_at_s.append(engine.now_s)
    gaps_s = [after - before for before, after in pairwise([began_at_s, *ran_at_s])]
    assert len(gaps_s) == 4
    assert all(2 < gap_s < 2.2 for gap_s in gaps_s)


def test_a_piece_of_a_prompt_runs_with_what_runs_whatever_realtime_does(engine: Engine) -> None:
    engine.share(WORK)
    busy = Demand(rows=64, context_tokens=64 * 500, work_prefill_tokens=5000)
    assert engine.share(busy) == Share(0, 0)
    risen = engine.share(busy._replace(floor_prefill_tokens=5000)).prefill_tokens
    assert 0 < risen * TOKEN_S < engine.pace.itl_target_s / 2
    assert engine.share(busy._replace(floor_prefill_tokens=1)).prefill_tokens == 1


def test_work_that_has_not_begun_is_not_held_for_ever(engine: Engine) -> None:
    busy = Demand(rows=64, context_tokens=64 * 500, work_prefill_tokens=5000)
    engine.share(WORK)
    assert engine.share(busy) == Share(0, 0)
    engine.now_s += 2.1
    assert engine.share(busy).prefill_tokens > 0
    assert engine.share(busy) == Share(0, 0)


def test_a_prompt_that_has_waited_leaves_less_to_work(engine: Engine) -> None:
    def prefilled(waited_s: float) -> int:
        demand = Demand(prefill_tokens=64, waited_s=waited_s, work_prefill_tokens=5000)
        return engine.share(demand).prefill_tokens

    target_s = engine.pace.ttft_target_s
    at_once, later, too_late = prefilled(0.0), prefilled(target_s / 10), prefilled(target_s)
    assert at_once > later > too_late == 0
    whole_s = engine.pace.model.predict(Step(0, 64 + at_once))
    assert whole_s == pytest.approx(TTFT_MARGIN * target_s, rel=0.01)


def test_prompts_are_prefilled_in_parts_while_realtime_is_quiet(engine: Engine) -> None:
    engine.now_s += 3600
    long_quiet = engine.share(WORK).prefill_tokens
    engine.share(Demand(rows=1))
    just_quiet = engine.share(WORK).prefill_tokens
    assert 0 < just_quiet < long_quiet < WORK.work_prefill_tokens
    # An engine that plans ahead has two such steps before a request's own.
    twice = Engine()
    twice.pace = Pace(Targets(ttft_factor=8.0), steps_ahead=2)
    once = Engine(Targets(ttft_factor=8.0))
    for each in (once, twice):
        each.warm_up()
        each.share(Demand(rows=1))
    assert twice.share(WORK).prefill_tokens < once.share(WORK).prefill_tokens
    # No more than what is there.
    assert engine.share(WORK._replace(work_prefill_tokens=7)).prefill_tokens == 7


@pytest.mark.parametrize("seed", range(4))
def test_the_number_of_rows_settles(seed: int) -> None:
    engine = Engine(noise=0.1, seed=seed)
    engine.warm_up()
    demand = WORK._replace(rows=4, context_tokens=1200, work_prefill_tokens=0)
    ran = [engine.step(demand) for _ in range(400)][100:]
    rows = [share.rows for share, _ in ran]
    assert statistics.mean(rows) > 4
    assert statistics.pstdev(rows) < 0.1 * statistics.mean(rows)
    target_s = 2 * engine.time_s(Step(1, 0, 300))
    assert 0.75 * target_s < statistics.mean(time_s for _, time_s in ran) < target_s


@pytest.mark.parametrize("seed", range(4))
def test_it_follows_a_machine_that_becomes_twice_as_slow_within_a_second(seed: int) -> None:
    engine = Engine(Targets(itl_ms=30), noise=0.1, seed=seed)
    engine.warm_up()
    demand = WORK._replace(rows=4, context_tokens=1200, work_prefill_tokens=0)
    before = [engine.step(demand)[0].rows for _ in range(200)][-1]
    engine.slowness = 2.0
    slow_since_s = engine.now_s
    while engine.now_s < slow_since_s + 1:
        engine.step(demand)
    ran = [engine.step(demand) for _ in range(100)]
    assert all(share.rows < before / 2 for share, _ in ran)
    assert statistics.mean(time_s for _, time_s in ran) < 0.030


_counts = st.integers(0, 300)
_tokens = st.integers(0, 100_000)
_demands = st.builds(
    Demand,
    rows=_counts,
    prefill_tokens=_tokens,
    context_tokens=_tokens,
    waited_s=st.floats(0, 100),
    work_rows=_counts,
    floor_rows=st.integers(0, 3),
    work_prefill_tokens=_tokens,
    work_context_tokens=_tokens,
)


@given(st.lists(st.tuples(_demands, st.floats(0, 60), st.floats(0, 10)), max_size=30))
def test_a_share_is_a_part_of_what_could_run(steps: list[tuple[Demand, float, float]]) -> None:
    pace = Pace(Targets())
    now_s = 0.0
    for demand, passed_s, time_s in steps:
        now_s += passed_s
        share = pace.share(demand, now_s)
        assert min(demand.floor_rows, demand.work_rows) <= share.rows <= demand.work_rows
        assert 0 <= share.prefill_tokens <= demand.work_prefill_tokens
        pace.learn(whole(demand, share), time_s)
