"""What engines measure, as their last heartbeats have it, whichever gateway is asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from inference.pace_stats import PaceStats
from inference.transport.figures import (
    PACE_BOUNDS_S,
    WAIT_BOUNDS_S,
    EngineFigures,
    Histogram,
    LaneFigures,
)
from inference.transport.frames import EngineReport

# By the values of a metric's own labels; None: the engine does not say.
_Values = Mapping[tuple[str, ...], float | None]


class _Told(NamedTuple):
    """A metric that an engine has, its labels beside the engine's, and where a heartbeat has it."""

    kind: type[GaugeMetricFamily | CounterMetricFamily]
    name: str
    meaning: str
    labels: tuple[str, ...]
    read: Callable[[EngineReport], _Values]


class _Spread(NamedTuple):
    """A histogram that an engine has of each lane, and where a lane's figures have it."""

    name: str
    meaning: str
    bounds_s: Sequence[float]
    read: Callable[[LaneFigures], Histogram]


def _figures(read: Callable[[EngineFigures], _Values]) -> Callable[[EngineReport], _Values]:
    return lambda report: read(report.figures)


def _pace(read: Callable[[PaceStats], _Values]) -> Callable[[EngineReport], _Values]:
    return lambda report: read(report.figures.pace) if report.figures.pace else {}


def _wasted(figures: EngineFigures) -> _Values:
    evicted = figures.pace.recomputed_tokens if figures.pace else None
    return {("preemption",): figures.wasted_tokens, ("eviction",): evicted}


def _tokens(figures: EngineFigures) -> _Values:
    values: dict[tuple[str, ...], float | None] = {}
    for lane, done in figures.lanes.items():
        values[lane, "input"] = done.input_tokens
        values[lane, "cached_input"] = done.cached_tokens
        values[lane, "output"] = done.output_tokens
    return values


_TOLD = (
    _Told(
        GaugeMetricFamily,
        "tandem_engine_capacity",
        "Requests at once.",
        (),
        lambda report: {(): report.capacity},
    ),
    _Told(
        GaugeMetricFamily,
        "tandem_engine_in_flight",
        "Requests running that gateways wait for.",
        (),
        lambda report: {(): report.in_flight},
    ),
    _Told(
        GaugeMetricFamily,
        "tandem_engine_kv_cache_usage_perc",
        "KV cache in use; 1 is all.",
        (),
        lambda report: {(): report.kv_use},
    ),
    _Told(
        GaugeMetricFamily,
        "tandem_engine_permits",
        "Permits that requests hold; those of all work are batch's.",
        ("lane",),
        _figures(lambda figures: {(lane,): it.permits for lane, it in figures.lanes.items()}),
    ),
    _Told(
        GaugeMetricFamily,
        "tandem_engine_permits_kept",
        "Permits that the lower lanes leave free.",
        (),
        _figures(lambda figures: {(): figures.kept_permits}),
    ),
    _Told(
        CounterMetricFamily,
        "tandem_engine_preemptions",
        "Rows of work put back because realtime needed their places.",
        (),
        _figures(lambda figures: {(): figures.preemptions}),
    ),
    _Told(
        CounterMetricFamily,
        "tandem_engine_evictions",
        "Rows of work that gave up their cache because realtime needed it.",
        (),
        _pace(lambda pace: {(): pace.evictions}),
    ),
    _Told(
        CounterMetricFamily,
        "tandem_engine_wasted_tokens",
        "Tokens computed for rows that gave up their place or cache.",
        ("cause",),
        _figures(_wasted),
    ),
    _Told(
        CounterMetricFamily,
        "tandem_engine_row_steps",
        "Rows of work in each step in which they could run, by what became of them.",
        ("state",),
        _pace(
            lambda pace: {
                ("run",): pace.row_steps - pace.held_row_steps,
                ("held",): pace.held_row_steps,
            }
        ),
    ),
    _Told(
        GaugeMetricFamily,
        "tandem_engine_target_seconds",
        "The times that realtime is to see.",
        ("time",),
        _pace(lambda pace: {("ttft",): pace.ttft_target_s, ("itl",): pace.itl_target_s}),
    ),
    _Told(
        GaugeMetricFamily,
        "tandem_engine_idle_seconds",
        "The same times in an idle engine.",
        ("time",),
        _pace(lambda pace: {("ttft",): pace.idle_ttft_s, ("itl",): pace.idle_itl_s}),
    ),
    _Told(
        CounterMetricFamily,
        "tandem_engine_target_requests",
        "Realtime requests by whether they saw the times that they were to see.",
        ("time", "outcome"),
        _figures(
            lambda figures: {
                ("ttft", "met"): figures.attained.ttft_met,
                ("ttft", "missed"): figures.attained.ttft_missed,
                ("itl", "met"): figures.attained.itl_met,
                ("itl", "missed"): figures.attained.itl_missed,
            }
        ),
    ),
    _Told(
        CounterMetricFamily,
        "tandem_engine_tokens",
        "Tokens of attempts that are over: input, cached_input (a part of input) and output.",
        ("lane", "kind"),
        _figures(_tokens),
    ),
    _Told(
        CounterMetricFamily,
        "tandem_engine_prefix_cache_queries",
        "Tokens that were looked for in the prefix cache.",
        (),
        _figures(lambda figures: {(): figures.prefix_queries}),
    ),
    _Told(
        CounterMetricFamily,
        "tandem_engine_prefix_cache_hits",
        "Those of them that were there.",
        (),
        _figures(lambda figures: {(): figures.prefix_hits}),
    ),
)
_SPREADS = (
    _Spread(
        "tandem_engine_queue_time_seconds",
        "From the queue to the engine that took the request.",
        WAIT_BOUNDS_S,
        lambda lane: lane.queue_time,
    ),
    _Spread(
        "tandem_engine_time_to_first_token_seconds",
        "From when the engine took the request to its first token.",
        WAIT_BOUNDS_S,
        lambda lane: lane.time_to_first_token,
    ),
    _Spread(
        "tandem_engine_time_per_output_token_seconds",
        "From one token to the next, on average over the request.",
        PACE_BOUNDS_S,
        lambda lane: lane.time_per_output_token,
    ),
)


class EngineCollector(Collector):
    """Engines that are alive. What one has counted goes with it."""

    def __init__(self, reports: Sequence[EngineReport]) -> None:
        self._reports = reports

    def collect(self) -> Iterator[Metric]:
        """Yield how many there are, and what each says."""
        engines = GaugeMetricFamily(
            "tandem_engines", "Live engines by state.", labels=["model", "state"]
        )
        for group, count in Counter((each.model, each.state) for each in self._reports).items():
            engines.add_metric(group, count)
        yield engines
        yield from map(self._told, _TOLD)
        yield from map(self._spread, _SPREADS)

    def _told(self, told: _Told) -> Metric:
        family = told.kind(told.name, told.meaning, labels=["model", "engine", *told.labels])
        for report in self._reports:
            for labels, value in told.read(report).items():
                if value is not None:
                    family.add_metric([report.model, report.engine_id, *labels], value)
        return family

    def _spread(self, spread: _Spread) -> Metric:
        family = HistogramMetricFamily(
            spread.name, spread.meaning, labels=["model", "engine", "lane"]
        )
        bounds = [*map(floatToGoString, spread.bounds_s), "+Inf"]
        for report in self._reports:
            for lane, done in report.figures.lanes.items():
                times = spread.read(done)
                if times.counts:
                    # Each bucket counts those of the ones before it, too.
                    buckets = list(zip(bounds, accumulate(times.counts), strict=False))
                    labels = [report.model, report.engine_id, lane]
                    family.add_metric(labels, buckets, times.sum_s)
        return family
