"""What the gateway measures, for Prometheus. Names follow the field's: see `docs/metrics.md`."""

from __future__ import annotations

import asyncio
from collections import Counter as Tally
from collections.abc import Iterator

from django.utils import timezone
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from gateway.http.consumer import ApiConsumer
from gateway.http.request import ApiRequest
from gateway.work_metrics import WorkCollector
from inference.errors import TandemError
from inference.events import Finished
from inference.transport.dispatcher import Dispatcher
from inference.transport.run import Run

# 10 ms doubling up to eleven minutes: the longest wait is ten.
_SECONDS = tuple(0.01 * 2**power for power in range(17))

_registry = CollectorRegistry()
_requests = Counter(
    "tandem_requests",
    "Generation requests that reached an engine's queue, by how they ended.",
    ["dialect", "model", "outcome"],
    registry=_registry,
)
_refusals = Counter(
    "tandem_refusals",
    "Requests that balance, spend caps or rate limits refused, by the error's code.",
    ["dialect", "model", "reason"],
    registry=_registry,
)
_tokens = Counter(
    "tandem_tokens",
    "Tokens of finished requests: input, cached_input (a part of input) and output.",
    ["model", "kind"],
    registry=_registry,
)
_first_token = Histogram(
    "tandem_time_to_first_token_seconds",
    "From admission to the first token, as the gateway sees it.",
    ["model"],
    buckets=_SECONDS,
    registry=_registry,
)
_duration = Histogram(
    "tandem_e2e_request_latency_seconds",
    "From admission to the end of the answer.",
    ["model"],
    buckets=_SECONDS,
    registry=_registry,
)


def count_run(dialect: str, run: Run) -> None:
    """Count a run that is over, however it ended."""
    model = run.request.model
    end = run.end
    outcome = "cancelled" if end is None else "ok" if isinstance(end, Finished) else end.code
    _requests.labels(dialect, model, outcome).inc()
    if run.first_text_s is not None:
        _first_token.labels(model).observe(run.first_text_s - run.created_s)
    if isinstance(end, Finished) and run.ended_s is not None:
        _duration.labels(model).observe(run.ended_s - run.created_s)
        _tokens.labels(model, "input").inc(end.usage.prompt_tokens)
        _tokens.labels(model, "cached_input").inc(end.usage.cached_tokens)
        _tokens.labels(model, "output").inc(end.usage.output_tokens)


def count_refusal(dialect: str, model: str, error: TandemError) -> None:
    """Count a request that was not let in."""
    _refusals.labels(dialect, model, error.code).inc()


class EngineCollector(Collector):
    """The engines as this gateway sees them, read when they are asked for."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def collect(self) -> Iterator[Metric]:
        """Yield the engines' states and loads, and this process's own requests."""
        flight = GaugeMetricFamily("tandem_requests_in_flight", "Requests of this process.")
        flight.add_metric([], self._dispatcher.in_flight)
        yield flight
        reports = list(self._dispatcher.engines.all())
        engines = GaugeMetricFamily(
            "tandem_engines", "Live engines by state.", labels=["model", "state"]
        )
        for (model, state), count in Tally((r.model, r.state) for r in reports).items():
            engines.add_metric([model, state], count)
        yield engines
        labels = ["model", "engine"]
        capacity = GaugeMetricFamily("tandem_engine_capacity", "Requests at once.", labels=labels)
        running = GaugeMetricFamily("tandem_engine_in_flight", "Requests running.", labels=labels)
        kv_use = GaugeMetricFamily(
            "tandem_engine_kv_cache_usage_perc", "KV cache in use; 1 is all.", labels=labels
        )
        for report in reports:
            capacity.add_metric([report.model, report.engine_id], report.capacity)
            running.add_metric([report.model, report.engine_id], report.in_flight)
            if report.kv_use is not None:
                kv_use.add_metric([report.model, report.engine_id], report.kv_use)
        yield from (capacity, running, kv_use)


class _Backlog(Collector):
    """Records on their way to the database; None while Redis does not say."""

    def __init__(self, waiting: int | None, dead: int | None) -> None:
        self._gauges = {
            "tandem_records_waiting": (
                "Entries of records that no recorder has written yet.",
                waiting,
            ),
            "tandem_records_dead": ("Records that could not be written and are put aside.", dead),
        }

    def collect(self) -> Iterator[Metric]:
        """Yield what is known."""
        for name, (meaning, value) in self._gauges.items():
            if value is not None:
                yield GaugeMetricFamily(name, meaning, value=value)


class Metrics(ApiConsumer):
    """`GET /metrics`: of all gateway processes of this machine, where they share a folder."""

    public = True

    async def handle(self, request: ApiRequest) -> None:
        """Answer in Prometheus' text format."""
        body = generate_latest(self._registry())
        engines = CollectorRegistry()
        engines.register(EngineCollector(self.services.dispatcher))
        records, work = await asyncio.gather(
            self.services.record_backlog(), self.services.work_state()
        )
        engines.register(_Backlog(*records))
        engines.register(WorkCollector(*work, timezone.now()))
        body += generate_latest(engines)
        content_type = b"text/plain; version=0.0.4; charset=utf-8"
        identity = (b"request-id", request.public_id.encode())
        await self.respond(200, body, [(b"content-type", content_type), identity])

    def _registry(self) -> CollectorRegistry:
        if not self.services.config.PROMETHEUS_MULTIPROC_DIR:
            return _registry
        shared = CollectorRegistry()
        MultiProcessCollector(shared)  # type: ignore[no-untyped-call]
        return shared
