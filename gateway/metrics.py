"""What the gateway measures, for Prometheus. Names follow the field's: see `docs/metrics.md`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from django.utils import timezone
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from gateway.engine_metrics import EngineCollector
from gateway.http.consumer import ApiConsumer
from gateway.http.request import ApiRequest
from gateway.work_metrics import WorkCollector
from inference.errors import TandemError
from inference.events import Finished
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
_fallbacks = Counter(
    "tandem_fallbacks",
    "Requests that a model could not answer and its fallback has.",
    ["model", "fallback"],
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


def count_fallback(model: str, fallback: str) -> None:
    """Count a request that `fallback` answers in the place of `model`."""
    _fallbacks.labels(model, fallback).inc()


class _Own(Collector):
    """This process' requests, and records on their way to the database; None: it is not known."""

    def __init__(self, in_flight: int, waiting: int | None, dead: int | None) -> None:
        self._gauges = {
            "tandem_requests_in_flight": ("Requests of this process.", in_flight),
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
        records, work = await asyncio.gather(
            self.services.record_backlog(), self.services.work_state()
        )
        dispatcher = self.services.dispatcher
        found = CollectorRegistry()
        found.register(_Own(dispatcher.in_flight, *records))
        found.register(EngineCollector(list(dispatcher.engines.all())))
        found.register(WorkCollector(*work, timezone.now()))
        # Hundreds of lines for each engine: streams go on meanwhile.
        body += await asyncio.to_thread(generate_latest, found)
        content_type = b"text/plain; version=0.0.4; charset=utf-8"
        identity = (b"request-id", request.public_id.encode())
        await self.respond(200, body, [(b"content-type", content_type), identity])

    def _registry(self) -> CollectorRegistry:
        if not self.services.config.PROMETHEUS_MULTIPROC_DIR:
            return _registry
        shared = CollectorRegistry()
        MultiProcessCollector(shared)  # type: ignore[no-untyped-call]
        return shared
