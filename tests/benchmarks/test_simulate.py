"""The simulator: nothing is lost or counted twice, and policies come out in the order they must."""

from __future__ import annotations

import itertools
import json
import random
import statistics
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from inference.pace import Targets
from inference.request import Lane
from inference.step_model import Step
from tests.benchmarks.simulator.arrivals import (
    CONVERSATIONS,
    Arrival,
    arrivals,
    bursty,
    recorded,
    work_rows,
)
from tests.benchmarks.simulator.engine import Engine
from tests.benchmarks.simulator.fleet import Fleet, Setup
from tests.benchmarks.simulator.machine import CPU, H200_8B, Machine
from tests.benchmarks.simulator.policy import (
    PACED,
    PACED_WORK_ALONE,
    PRIORITY_ONLY,
    REALTIME_ALONE,
    STATIC_SHARE,
    WORK_ALONE,
    Policy,
)
from tests.benchmarks.simulator.tally import Job

MIXES = (PACED, PRIORITY_ONLY, STATIC_SHARE)
# Small enough to be full of work within a second, and to run out of cache.
SMALL = replace(H200_8B, places=16, kv_tokens=24_000)
TRACE = arrivals("poisson", CONVERSATIONS, mean_s=0.25, window_s=12, seed="test")


def _fleet(
    policy: Policy,
    machine: Machine = SMALL,
    *,
    engines: int = 1,
    rows: int = 0,
    window_s: float = 12,
) -> Fleet:
    setup = Setup(machine=machine, engines=engines, policy=policy, window_s=window_s, warm_up_s=2)

    def source(number: int) -> Iterator[Arrival]:
        endless = work_rows(CONVERSATIONS, f"{number}")
        return itertools.islice(endless, rows) if rows else endless

    return Fleet(setup, source)


def _row_tokens(rows: int) -> int:
    """Return what an engine's first rows put out in all."""
    return sum(row.output_tokens for row in itertools.islice(work_rows(CONVERSATIONS, "0"), rows))


def _everything(policy: Policy) -> tuple[object, ...]:
    fleet = _fleet(policy, replace(SMALL, noise=0.1), engines=2)
    jobs = fleet.run(TRACE)
    return [(job.first_s, job.ended_s) for job in jobs], vars(fleet.tally)


@pytest.mark.parametrize("policy", [REALTIME_ALONE, *MIXES], ids=lambda policy: policy.name)
@pytest.mark.parametrize("engines", [1, 3])
def test_every_request_is_answered_once_and_whole(policy: Policy, engines: int) -> None:
    fleet = _fleet(policy, engines=engines)

    jobs = fleet.run(TRACE)

    assert len(jobs) == len(TRACE) == fleet.tally.realtime_ended
    assert all(
        job.ended_s is not None and job.first_s is not None and job.first_s > job.arrived_s
        for job in jobs
    )
    assert fleet.tally.realtime_tokens == sum(arrival.output_tokens for arrival in TRACE)


@pytest.mark.parametrize("policy", [*MIXES, PACED_WORK_ALONE], ids=lambda policy: policy.name)
def test_every_row_ends_once_whatever_it_was_interrupted_by(policy: Policy) -> None:
    fleet = _fleet(policy, rows=40)
    fleet.tally.begin_s, fleet.tally.end_s = 0, float("inf")

    fleet.run(TRACE if policy.realtime else [])

    assert fleet.tally.work_ended == 40
    assert fleet.tally.work_tokens == fleet.tally.ended_tokens == _row_tokens(40)
    assert fleet.engines[0].in_flight == fleet.engines[0].kv_tokens == 0


@pytest.mark.parametrize("policy", MIXES, ids=lambda policy: policy.name)
def test_no_place_is_used_twice_and_the_cache_is_never_overrun(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = replace(SMALL, kv_tokens=14_000)
    seen: list[int] = []

    def watched(engine: Engine, now_s: float) -> list[Job]:
        assert engine.run is not None
        busy = engine.begun
        assert busy <= machine.places
        assert 0 <= engine.kv_tokens <= machine.kv_tokens
        seen.append(busy)
        return finish(engine, now_s)

    finish = Engine.finish
    monkeypatch.setattr(Engine, "finish", watched)
    _fleet(policy, machine).run(TRACE)

    assert max(seen) > machine.places // 2


def test_a_cache_that_is_full_makes_rows_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = replace(SMALL, kv_tokens=9_000)
    setup = Setup(machine=machine, engines=1, policy=PRIORITY_ONLY, window_s=60, warm_up_s=0)
    seen: list[int] = []

    def watched(engine: Engine, now_s: float) -> list[Job]:
        ended = finish(engine, now_s)
        seen.append(engine.kv_tokens)
        return ended

    finish = Engine.finish
    monkeypatch.setattr(Engine, "finish", watched)
    fleet = Fleet(setup, lambda number: itertools.repeat(Arrival(0, 100, 1000), 30))
    fleet.run([])

    assert fleet.tally.evictions
    assert fleet.tally.work_ended == 30
    assert fleet.tally.work_tokens == 30_000
    assert machine.kv_tokens * 0.9 < max(seen) <= machine.kv_tokens


def test_a_burst_takes_places_back_from_work() -> None:
    rows = 200
    burst = [Arrival(6 + number / 1000, 100, 400) for number in range(8)]
    fleet = _fleet(PACED, rows=rows, window_s=60)

    jobs = fleet.run(burst)

    assert fleet.tally.preemptions
    assert fleet.tally.wasted_tokens
    assert all(job.ended_s is not None for job in jobs)
    # What was taken back begins again, and comes to its end.
    assert (fleet.tally.work_ended, fleet.tally.ended_tokens) == (rows, _row_tokens(rows))
    assert fleet.engines[0].kv_tokens == 0
    admission = fleet.engines[0].admission
    assert admission.held(Lane.REALTIME) == admission.held(Lane.BATCH) == 0


@pytest.mark.parametrize("policy", MIXES, ids=lambda policy: policy.name)
def test_the_same_seed_gives_the_same_figures(policy: Policy) -> None:
    assert _everything(policy) == _everything(policy)


def test_pace_keeps_the_first_token_and_the_tokens_after_it_nearer_to_those_without_work() -> None:
    alone, paced, priority = (
        _fleet(policy, H200_8B) for policy in (REALTIME_ALONE, PACED, PRIORITY_ONLY)
    )
    for fleet in (alone, paced, priority):
        fleet.run(TRACE)

    assert alone.tally.first_ms(99) <= paced.tally.first_ms(99) * 1.01
    assert paced.tally.first_ms(99) < priority.tally.first_ms(99)
    assert alone.tally.gap_mean_ms <= paced.tally.gap_mean_ms < priority.tally.gap_mean_ms
    assert paced.tally.work_tokens > 0


def test_tighter_targets_leave_work_less() -> None:
    loose, tight = (
        _fleet(Policy(name="", targets=Targets(itl_factor=factor)), H200_8B)
        for factor in (3.0, 1.2)
    )
    for fleet in (loose, tight):
        fleet.run(TRACE)

    assert tight.tally.work_tokens < loose.tally.work_tokens
    assert tight.tally.gap_mean_ms < loose.tally.gap_mean_ms


def test_a_request_alone_takes_the_steps_that_it_needs() -> None:
    """The arithmetic by hand: a prompt in one step, then a step for each token."""
    machine = replace(CPU, row_s=0.01, context_s=1e-5)
    fleet = _fleet(REALTIME_ALONE, machine)

    (job,) = fleet.run([Arrival(1.0, 100, 3)])

    first_s = 1.0 + machine.base_s + 100 * machine.token_s
    step_s = machine.base_s + machine.row_s + 100.5 * machine.context_s
    assert job.first_s == pytest.approx(first_s)
    assert job.ended_s == pytest.approx(first_s + 2 * step_s, rel=1e-4)


def test_one_that_plans_ahead_runs_a_step_more_before_a_new_request() -> None:
    trace = [Arrival(1.0, 100, 200), Arrival(2.0, 100, 1)]
    late, early = (
        _fleet(REALTIME_ALONE, replace(CPU, plans_ahead=ahead)).run(trace)[1]
        for ahead in (True, False)
    )

    assert late.first_s is not None
    assert early.first_s is not None
    assert late.first_s - early.first_s == pytest.approx(CPU.base_s + CPU.row_s)


def test_shared_prompts_are_prefilled_once() -> None:
    tallies = []
    for shared_tokens in (0, 800):
        setup = Setup(
            machine=SMALL,
            engines=1,
            policy=WORK_ALONE,
            window_s=12,
            warm_up_s=2,
            shared_tokens=shared_tokens,
        )
        fleet = Fleet(setup, lambda number: work_rows(CONVERSATIONS, "shared"))
        fleet.run([])
        tallies.append(fleet.tally.work_tokens)

    assert tallies[1] > tallies[0]


def test_the_least_loaded_engine_is_first_where_engines_bid() -> None:
    trace = [Arrival(1.0, 4000, 900), Arrival(1.5, 4000, 1), Arrival(4.0, 100, 1)]
    setup = Setup(
        machine=SMALL, engines=2, policy=REALTIME_ALONE, window_s=12, warm_up_s=0, bid_s=0.001
    )
    fleet = Fleet(setup, lambda number: work_rows(CONVERSATIONS, "0"))
    jobs = fleet.run(trace)

    # The other one is idle again, and starts it without a wait.
    assert jobs[2].first_s == pytest.approx(4.0 + SMALL.step_s(Step(0, 100)))


def test_the_model_learns_a_machine() -> None:
    model = H200_8B.learned()

    for step in (Step(1), Step(64, 0, 70_000), Step(8, 500, 9_000)):
        assert model.predict(step) == pytest.approx(H200_8B.step_s(step), rel=0.1)


def test_bursts_keep_the_mean_and_are_denser() -> None:
    at_s = bursty(random.Random(1), 0.5, 20_000)
    counted = Counter(int(moment / 10) for moment in at_s)
    by_window = [counted[number] for number in range(2_000)]

    assert at_s == sorted(at_s)
    assert statistics.mean(by_window) == pytest.approx(20, rel=0.1)
    # A Poisson process has a variance as large as its mean.
    assert statistics.variance(by_window) > 3 * statistics.mean(by_window)


def test_recorded_arrivals_are_read_from_json_and_csv(tmp_path: Path) -> None:
    wanted = [Arrival(0.5, 10, 3), Arrival(2.0, 7, 1)]
    as_json, as_csv = tmp_path / "trace.json", tmp_path / "trace.csv"
    as_json.write_text(json.dumps([arrival._asdict() for arrival in reversed(wanted)]))
    lines = ["prompt_tokens,at_s,output_tokens", "10,0.5,3", "7,2.0,1"]
    as_csv.write_text("\n".join(lines) + "\n")

    assert recorded(as_json) == recorded(as_csv) == wanted
