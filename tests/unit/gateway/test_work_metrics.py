"""How work and batches are told to Prometheus."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

from prometheus_client import CollectorRegistry, generate_latest

from gateway.work_metrics import WorkCollector
from jobs.work.backlog import Backlog
from jobs.work.metric_counts import MetricCounts

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def told(backlog: Backlog | None, counts: MetricCounts | None) -> list[str]:
    """Return the lines that have values."""
    registry = CollectorRegistry()
    registry.register(WorkCollector(backlog, counts, NOW))
    lines = generate_latest(registry).decode().splitlines()
    return [line for line in lines if not line.startswith("#")]


def test_what_there_is_has_its_model_and_lane() -> None:
    group = ("m", "batch")
    backlog = Backlog(
        pending=Counter({group: 3}),
        running=Counter({group: 2}),
        oldest={group: NOW - timedelta(seconds=90)},
        batches=Counter({("openai", "in_progress"): 1}),
    )
    assert told(backlog, None) == [
        'tandem_work_pending{lane="batch",model="m"} 3.0',
        'tandem_work_running{lane="batch",model="m"} 2.0',
        'tandem_work_oldest_wait_seconds{lane="batch",model="m"} 90.0',
        'tandem_batches{form="openai",status="in_progress"} 1.0',
    ]


def test_what_became_of_it_is_counted() -> None:
    counts = MetricCounts(Counter({("m", "completed"): 5}), Counter({"m": 2}))
    assert told(None, counts) == [
        'tandem_work_ended_total{model="m",outcome="completed"} 5.0',
        'tandem_work_engine_deaths_total{model="m"} 2.0',
    ]


def test_nothing_is_said_of_what_is_not_known() -> None:
    assert told(None, None) == []
