"""How what engines measure is told to Prometheus."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from gateway.engine_metrics import EngineCollector
from inference.pace_stats import PaceStats
from inference.request import Lane
from inference.transport.figures import (
    PACE_BOUNDS_S,
    WAIT_BOUNDS_S,
    Attainment,
    EngineFigures,
    Histogram,
    LaneFigures,
)
from inference.transport.frames import EngineReport, EngineState

PACE = PaceStats(
    itl_target_s=0.02,
    ttft_target_s=0.25,
    idle_itl_s=0.01,
    idle_ttft_s=0.1,
    row_steps=10,
    held_row_steps=4,
    evictions=2,
    recomputed_tokens=30,
)


def report(
    engine_id: str = "e", figures: EngineFigures | None = None, **fields: Any
) -> EngineReport:
    """Return the heartbeat of an engine of model `m`."""
    known: dict[str, Any] = {
        "engine_id": engine_id,
        "model": "m",
        "host": "h",
        "pid": 1,
        "state": EngineState.READY,
        "capacity": 4,
        "in_flight": 1,
        "kv_use": None,
        "started_at_s": 0,
    }
    return EngineReport(**known | fields, figures=figures or EngineFigures())


def told(*reports: EngineReport) -> dict[str, float]:
    """Return the values, each by its name and labels."""
    registry = CollectorRegistry()
    registry.register(EngineCollector(reports))
    lines = generate_latest(registry).decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def test_engines_are_counted_by_state() -> None:
    values = told(report("a"), report("b"), report("c", state=EngineState.LOADING))
    assert values['tandem_engines{model="m",state="ready"}'] == 2
    assert values['tandem_engines{model="m",state="loading"}'] == 1
    assert told() == {}


def test_decisions_of_admission_and_pace_are_told() -> None:
    figures = EngineFigures(
        lanes={Lane.REALTIME: LaneFigures(permits=3)},
        kept_permits=1,
        preemptions=5,
        wasted_tokens=70,
        attained=Attainment(ttft_met=8, ttft_missed=1, itl_met=6, itl_missed=2),
        prefix_queries=100,
        prefix_hits=60,
        pace=PACE,
    )
    values = told(report(figures=figures, kv_use=0.5))
    engine = 'engine="e"'
    model = 'model="m"'
    of_engine = f"{{{engine},{model}}}"
    expected = {
        f"tandem_engine_capacity{of_engine}": 4,
        f"tandem_engine_in_flight{of_engine}": 1,
        f"tandem_engine_kv_cache_usage_perc{of_engine}": 0.5,
        f'tandem_engine_permits{{{engine},lane="realtime",{model}}}': 3,
        f"tandem_engine_permits_kept{of_engine}": 1,
        f"tandem_engine_preemptions_total{of_engine}": 5,
        f"tandem_engine_evictions_total{of_engine}": 2,
        f'tandem_engine_wasted_tokens_total{{cause="preemption",{engine},{model}}}': 70,
        f'tandem_engine_wasted_tokens_total{{cause="eviction",{engine},{model}}}': 30,
        f'tandem_engine_row_steps_total{{{engine},{model},state="run"}}': 6,
        f'tandem_engine_row_steps_total{{{engine},{model},state="held"}}': 4,
        f'tandem_engine_target_seconds{{{engine},{model},time="ttft"}}': 0.25,
        f'tandem_engine_target_seconds{{{engine},{model},time="itl"}}': 0.02,
        f'tandem_engine_idle_seconds{{{engine},{model},time="ttft"}}': 0.1,
        f'tandem_engine_idle_seconds{{{engine},{model},time="itl"}}': 0.01,
        f"tandem_engine_prefix_cache_queries_total{of_engine}": 100,
        f"tandem_engine_prefix_cache_hits_total{of_engine}": 60,
    }
    assert expected.items() <= values.items()
    name = "tandem_engine_target_requests_total"
    attained = {
        (time, outcome): values[f'{name}{{{engine},{model},outcome="{outcome}",time="{time}"}}']
        for time in ("ttft", "itl")
        for outcome in ("met", "missed")
    }
    assert list(attained.values()) == [8, 1, 6, 2]


def test_each_lane_has_its_tokens_and_times() -> None:
    counts = [0] * (len(WAIT_BOUNDS_S) + 1)
    counts[WAIT_BOUNDS_S.index(0.004)] = 2
    counts[WAIT_BOUNDS_S.index(0.032)] = 1
    counts[-1] = 1
    done = LaneFigures(
        input_tokens=10, cached_tokens=4, output_tokens=6, queue_time=Histogram((*counts,), 700.5)
    )
    values = told(report(figures=EngineFigures(lanes={Lane.FLEX: done})))
    tokens = [
        values[f'tandem_engine_tokens_total{{engine="e",kind="{kind}",lane="flex",model="m"}}']
        for kind in ("input", "cached_input", "output")
    ]
    assert tokens == [10, 4, 6]
    name, labels = "tandem_engine_queue_time_seconds", 'engine="e",lane="flex",model="m"'
    buckets = {
        bound: values[f'{name}_bucket{{engine="e",lane="flex",le="{bound}",model="m"}}']
        for bound in ("0.001", "0.004", "0.016", "0.032", "524.288", "+Inf")
    }
    assert list(buckets.values()) == [0, 2, 2, 3, 3, 4]
    assert values[f"{name}_count{{{labels}}}"] == 4
    assert values[f"{name}_sum{{{labels}}}"] == 700.5


def test_what_an_engine_does_not_say_is_left_out() -> None:
    names = {name.partition("{")[0] for name in told(report())}
    assert "tandem_engine_capacity" in names
    assert not [name for name in names if "prefix_cache" in name or "target_seconds" in name]
    assert not [name for name in names if "kv_cache" in name or name.endswith("_bucket")]


def test_bounds_rise() -> None:
    for bounds_s in (WAIT_BOUNDS_S, PACE_BOUNDS_S):
        assert sorted(set(bounds_s)) == list(bounds_s)
