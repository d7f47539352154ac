"""What of work and batches is measured: as the database and Redis have it, whoever is asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from jobs.work.backlog import Backlog
from jobs.work.metric_counts import MetricCounts


class WorkCollector(Collector):
    """What was found at one moment; None: it could not be had, and nothing is said of it."""

    def __init__(self, backlog: Backlog | None, counts: MetricCounts | None, now: datetime) -> None:
        self._backlog = backlog
        self._counts = counts
        self._now = now

    def collect(self) -> Iterator[Metric]:
        """Yield what is known."""
        if self._backlog is not None:
            yield from self._current(self._backlog)
        if self._counts is not None:
            yield from _counted(self._counts)

    def _current(self, backlog: Backlog) -> Iterator[Metric]:
        labels = ["model", "lane"]
        waits = {
            group: max(0.0, (self._now - since).total_seconds())
            for group, since in backlog.oldest.items()
        }
        yield _gauge("tandem_work_pending", "Work that waits.", labels, backlog.pending)
        yield _gauge("tandem_work_running", "Work that engines run.", labels, backlog.running)
        yield _gauge("tandem_work_oldest_wait_seconds", "Age of what waits longest.", labels, waits)
        yield _gauge("tandem_batches", "Open batches.", ["form", "status"], backlog.batches)


def _gauge(
    name: str, meaning: str, labels: list[str], values: Mapping[tuple[str, str], float]
) -> Metric:
    family = GaugeMetricFamily(name, meaning, labels=labels)
    for group, value in values.items():
        family.add_metric(list(group), value)
    return family


def _counted(counts: MetricCounts) -> Iterator[Metric]:
    ended = CounterMetricFamily(
        "tandem_work_ended", "Work that has ended, by how.", labels=["model", "outcome"]
    )
    for group, count in counts.ended.items():
        ended.add_metric(list(group), count)
    deaths = CounterMetricFamily(
        "tandem_work_engine_deaths", "Work whose engine died while it ran.", labels=["model"]
    )
    for model, count in counts.deaths.items():
        deaths.add_metric([model], count)
    yield from (ended, deaths)
