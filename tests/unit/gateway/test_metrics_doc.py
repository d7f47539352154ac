"""The table of metrics in the documentation."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from django.utils import timezone

from gateway import metrics
from gateway.engine_metrics import EngineCollector
from gateway.work_metrics import WorkCollector
from jobs.work.backlog import Backlog
from jobs.work.metric_counts import MetricCounts

DOCUMENT = Path(__file__).parents[3] / "docs" / "metrics.md"
ROW = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)


def test_it_has_every_metric_and_no_other() -> None:
    backlog = Backlog(Counter(), Counter(), {}, Counter())
    counts = MetricCounts(Counter(), Counter())
    work = WorkCollector(backlog, counts, timezone.now())
    collectors = [metrics._registry, metrics._Own(0, 0, 0), EngineCollector([]), work]
    exported = {
        f"{metric.name}_total" if metric.type == "counter" else metric.name
        for collector in collectors
        for metric in collector.collect()
    }
    described = ROW.findall(DOCUMENT.read_text())
    assert sorted(described) == sorted(exported)
