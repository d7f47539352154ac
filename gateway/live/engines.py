"""Engines and what waits for them: a part for each engine, model and lane with a queue in Redis."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

import msgspec

from gateway.live.heartbeats import Heartbeats, Queue, Sight
from gateway.live.models import Models
from gateway.live.parts import Parts, encode
from inference.catalogue import ModelEntry
from inference.request import Lane
from inference.transport.frames import EngineReport, EngineState
from inference.transport.keys import QUEUED_LANES

# Tokens are counted when an answer ends: over less time their pace would jump.
_PACE_OVER_S = 30.0
# Whoever starts a lost engine again has done it by then, or does not want to.
_REMEMBERED_S = 15 * 60
# That of a host and that of this one.
_CLOCKS_DIFFER_S = 10.0
MISSING = "missing"


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """One engine. `state` is that of its heartbeat, or `missing`, since `missing_since_s`.

    `running` has the permits that each lane's requests hold, those of all work under `batch`;
    `kept` are those that work must leave free. Shares are from 0 to 1, None: it does not say.
    `canary`: whether it has proved itself; `none`: the model has no canary.
    """

    id: str
    model: str
    host: str
    pid: int
    state: str
    reason: str
    canary: str
    started_at_s: int
    missing_since_s: int | None
    capacity: int
    kept: int
    running: dict[Lane, int]
    kv_use: float | None
    prefix_hit_rate: float | None
    input_tokens_per_s: float | None
    output_tokens_per_s: float | None


class ModelState(msgspec.Struct, frozen=True, kw_only=True):
    """A model of the catalogue: engines by state, and the times that realtime is to see, if any."""

    id: str
    upstream: str
    engines: dict[str, int]
    first_token_target_s: float | None
    between_tokens_target_s: float | None


class LaneQueue(msgspec.Struct, frozen=True, kw_only=True):
    """What waits in a lane, since when the oldest of it, and what runs."""

    waiting: int
    since_s: float | None
    running: int


class Lost(NamedTuple):
    """An engine that went silent, and when that was noticed."""

    report: EngineReport
    since_s: float


class _Counted(NamedTuple):
    """Tokens that an engine had counted at a time."""

    at_s: float
    input_tokens: int
    output_tokens: int


class Engines:
    """The engines that are there, and those that should be."""

    name = "redis"
    every_s = 1.0

    def __init__(self, heartbeats: Heartbeats, models: Models) -> None:
        self._heartbeats = heartbeats
        self._models = models
        self._counted: dict[str, deque[_Counted]] = {}
        self.parts: Parts = {}
        self.reports: dict[str, EngineReport] = {}
        self.lost: dict[str, Lost] = {}
        self.states: list[ModelState] = []
        self.records_since_s: float | None = None
        self.records_dead = 0

    async def look(self, now: datetime) -> None:
        """Look at all heartbeats and queues."""
        sight = await self._heartbeats.look(self._models.entries)
        self.see(sight, now.timestamp())

    def see(self, sight: Sight, now_s: float) -> None:
        """Take what a look has found."""
        self._notice_losses(sight, now_s)
        self.reports = sight.reports
        self.records_dead = sight.records_dead
        self.records_since_s = sight.records_since_s
        self._counted = {
            engine_id: _count(self._counted.get(engine_id), report, now_s)
            for engine_id, report in sight.reports.items()
        }
        self.states = [self._state(entry) for entry in self._models.entries.values()]
        cards = {f"engine/{card.id}": encode(card) for card in self._cards()}
        states = {f"model/{state.id}": encode(state) for state in self.states}
        queues = {f"queue/{lane}": encode(self._queue(lane, sight.queues)) for lane in QUEUED_LANES}
        self.parts = cards | states | queues

    def _notice_losses(self, sight: Sight, now_s: float) -> None:
        for engine_id in sight.silent & self.reports.keys():
            self.lost.setdefault(engine_id, Lost(self.reports[engine_id], now_s))
        self.lost = {
            engine_id: lost
            for engine_id, lost in self.lost.items()
            if engine_id not in sight.reports
            and lost.since_s > now_s - _REMEMBERED_S
            and not any(_replaces(report, lost) for report in sight.reports.values())
        }

    def _state(self, entry: ModelEntry) -> ModelState:
        own = [report for report in self.reports.values() if report.model == entry.id]
        paces = [report.figures.pace for report in own if report.figures.pace]
        first, between = _seconds(entry.ttft_target_ms), _seconds(entry.itl_target_ms)
        if paces:
            first, between = paces[0].ttft_target_s, paces[0].itl_target_s
        return ModelState(
            id=entry.id,
            upstream=entry.upstream.name if entry.upstream else "",
            engines=dict(Counter(report.state.value for report in own)),
            first_token_target_s=_rounded(first, 4),
            between_tokens_target_s=_rounded(between, 4),
        )

    def _cards(self) -> Iterator[Card]:
        for report in self.reports.values():
            yield self._card(report, report.state.value, None)
        for report, since_s in self.lost.values():
            yield self._card(report, MISSING, round(since_s))

    def _card(self, report: EngineReport, state: str, missing_since_s: int | None) -> Card:
        figures = report.figures
        per_s = _per_s(self._counted.get(report.engine_id))
        return Card(
            id=report.engine_id,
            model=report.model,
            host=report.host,
            pid=report.pid,
            state=state,
            reason=report.reason,
            canary=self._canary(report),
            started_at_s=round(report.started_at_s),
            missing_since_s=missing_since_s,
            capacity=report.capacity,
            kept=figures.kept_permits,
            running={lane: done.permits for lane, done in figures.lanes.items() if done.permits},
            kv_use=_rounded(report.kv_use, 2),
            prefix_hit_rate=_share(figures.prefix_hits, figures.prefix_queries),
            input_tokens_per_s=per_s and per_s[0],
            output_tokens_per_s=per_s and per_s[1],
        )

    def _canary(self, report: EngineReport) -> str:
        entry = self._models.entries.get(report.model)
        if entry is None or not entry.canary_prompt:
            return "none"
        if report.state is EngineState.FAILED:
            return "failed"
        return "pending" if report.state is EngineState.LOADING else "passed"

    def _queue(self, lane: Lane, queues: list[Queue]) -> LaneQueue:
        own = [queue for queue in queues if queue.lane is lane]
        done = [report.figures.lanes.get(lane) for report in self.reports.values()]
        return LaneQueue(
            waiting=sum(queue.waiting for queue in own),
            since_s=min((queue.since_s for queue in own if queue.since_s), default=None),
            running=sum(figures.permits for figures in done if figures),
        )


def _count(before: deque[_Counted] | None, report: EngineReport, now_s: float) -> deque[_Counted]:
    counted = before if before is not None else deque()
    while len(counted) > 1 and counted[0].at_s < now_s - _PACE_OVER_S:
        counted.popleft()
    lanes = report.figures.lanes.values()
    counted.append(
        _Counted(
            now_s,
            sum(lane.input_tokens for lane in lanes),
            sum(lane.output_tokens for lane in lanes),
        )
    )
    return counted


def _per_s(counted: deque[_Counted] | None) -> tuple[float, float] | None:
    """Return input and output tokens a second; None: there is nothing yet to tell it from."""
    if counted is None or len(counted) < 2 or counted[-1].at_s <= counted[0].at_s:
        return None
    first, last = counted[0], counted[-1]
    passed_s = last.at_s - first.at_s
    return (
        round((last.input_tokens - first.input_tokens) / passed_s, 1),
        round((last.output_tokens - first.output_tokens) / passed_s, 1),
    )


def _replaces(report: EngineReport, lost: Lost) -> bool:
    """Whether an engine was started in the place of a lost one."""
    place = (lost.report.model, lost.report.host)
    began_after = report.started_at_s > lost.since_s - _CLOCKS_DIFFER_S
    return (report.model, report.host) == place and began_after


def _share(part: int | None, whole: int | None) -> float | None:
    return round(part / whole, 3) if part is not None and whole else None


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
