"""What is not well, and what to do about it. Pure, but for the addresses of the admin's pages.

Nothing here counts seconds: a moment since when is told instead, so that an alert that stands is
told once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import urlencode

import msgspec
from django.contrib.admin.utils import quote
from django.urls import reverse

from gateway.amounts import amount
from gateway.live.engines import Lost, ModelState
from gateway.live.traffic import RECENT, Failures, Latency
from gateway.live.usage import Short
from gateway.live.work import BatchState, Waiting
from inference.request import Lane
from inference.transport.frames import EngineReport, EngineState

# A heartbeat may be late once; a clerk may have much to write at once.
_SILENT_S = 3.0
_BEHIND_S = 10.0
# Of the requests that ended in the last minutes; a few prove nothing.
_ERROR_SHARE = 0.05
_ERRORS = 5
_TIMED = 20
# Without a pace there is no forecast: what has not begun by then will hardly be done in time.
_WINDOW_SHARE = 0.75
_MINUTES = int(RECENT.total_seconds() // 60)


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to look at. `level` is critical or warning; `link` an address of the admin.

    `about` tells those apart that lead to one place. `since_s` is when it began, where that says
    something.
    """

    kind: str
    level: str
    text: str
    advice: str
    link: str = ""
    about: str = ""
    since_s: int | None = None


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What the alerts about the service follow from. `away` are sources that do not answer.

    `waiting` is by model; what waits of batches for several models is under an empty one.
    `records_since_s` is when the oldest record came that the clerk has not written down.
    """

    now_s: float
    away: tuple[str, ...] = ()
    states: tuple[ModelState, ...] = ()
    reports: tuple[EngineReport, ...] = ()
    lost: tuple[Lost, ...] = ()
    waiting: Mapping[str, Waiting] = {}
    latencies: tuple[Latency, ...] = ()
    failures: tuple[Failures, ...] = ()
    records_since_s: float | None = None
    records_dead: int = 0


def of_service(facts: Facts) -> list[Alert]:
    """Return what is not well with engines, requests and records, what is worst first."""
    return _worst_first(
        [
            *_away(facts.away),
            *_engines(facts),
            *_errors(facts.failures),
            *_slow(facts.latencies, facts.states),
            *_records(facts),
        ]
    )


def of_batches(batches: Iterable[BatchState], now_s: float) -> list[Alert]:
    """Return batches that will not be done when their window ends."""
    return _worst_first(alert for batch in batches if (alert := _late(batch, now_s)))


def of_balances(short: Iterable[Short]) -> list[Alert]:
    """Return teams that will be refused before long, or are."""
    return _worst_first(_balance(team) for team in short)


def _worst_first(alerts: Iterable[Alert]) -> list[Alert]:
    return sorted(alerts, key=lambda alert: alert.level != "critical")


def _away(names: Iterable[str]) -> Iterator[Alert]:
    meaning = {
        "redis": ("Redis", "Requests are refused meanwhile, and engines cannot be seen."),
        "database": ("The database", "Figures of traffic, batches and spend are as they were."),
    }
    for name in sorted(set(names)):
        title, means = meaning[name]
        yield Alert(
            kind="away",
            level="critical",
            text=f"{title} does not answer.",
            advice=f"{means} See whether it runs and can be reached from here.",
        )


def _engines(facts: Facts) -> Iterator[Alert]:
    serving = {state.id for state in facts.states if state.engines.get(EngineState.READY)}
    coming = {state.id for state in facts.states if state.engines.get(EngineState.LOADING)}
    for state in facts.states:
        if state.id not in serving | coming:
            yield _unserved(state, facts.waiting)
    for report, since_s in facts.lost:
        if facts.now_s - since_s >= _SILENT_S:
            yield Alert(
                kind="engine_missing",
                level="warning" if report.model in serving else "critical",
                text=f"An engine of {report.model} on {report.host} stopped answering.",
                advice="Its log on that host says why; serve starts it again by itself. What it "
                "ran goes to other engines of the model.",
                since_s=round(since_s),
            )
    for report in facts.reports:
        if report.state is EngineState.FAILED:
            yield Alert(
                kind="engine_failed",
                level="warning" if report.model in serving else "critical",
                text=f"An engine of {report.model} on {report.host} does not serve: "
                f"{report.reason or 'it failed'}",
                advice="Correct the model's settings, or its weights on that host, and start the "
                "engine again.",
                link=_model(report.model),
            )


def _unserved(state: ModelState, waiting: Mapping[str, Waiting]) -> Alert:
    waits = _waits(state.id, waiting)
    return Alert(
        kind="no_engine",
        level="critical",
        text=f"No engine serves {state.id}: callers get 503{f', and {waits}' if waits else ''}.",
        advice="Start one, or disable the model. What its engines say, and the commands that start "
        "one, are with the engines.",
        link=f"{reverse('admin:engines')}#unserved",
        about=state.id,
    )


def _waits(model: str, waiting: Mapping[str, Waiting]) -> str:
    """Say how much waits for a model; empty if nothing is known to."""
    own = waiting.get(model, Waiting(0, 0))
    # Those of batches for several models may be for this one.
    at_least = "at least " if waiting.get("", Waiting(0, 0)).rows else ""
    parts = [
        f"{at_least if what == 'row' else ''}{count:,} {what}{'s' if count > 1 else ''}{of}"
        for count, what, of in (
            (own.rows, "row", " of batches"),
            (own.responses, "background response", ""),
        )
        if count
    ]
    verb = "waits" if own.rows + own.responses == 1 else "wait"
    return f"{' and '.join(parts)} {verb} for it" if parts else ""


def _errors(failures: Iterable[Failures]) -> Iterator[Alert]:
    for each in failures:
        if each.failed >= _ERRORS and each.failed > _ERROR_SHARE * each.ended:
            query = {"status__exact": "failed", "model": each.model, "within": "hour"}
            yield Alert(
                kind="errors",
                level="critical" if each.failed > each.ended / 2 else "warning",
                text=f"{each.failed} of {each.ended} requests to {each.model} failed within "
                f"{_MINUTES} minutes, most with {each.kind}.",
                advice="Look at one of them: its page says what went wrong, and on which engine.",
                link=f"{reverse('admin:jobs_requestrecord_changelist')}?{urlencode(query)}",
            )


def _slow(latencies: Iterable[Latency], states: Iterable[ModelState]) -> Iterator[Alert]:
    targets = {state.id: state for state in states}
    for each in latencies:
        state = targets.get(each.model)
        if state is None or each.lane != Lane.REALTIME or each.requests < _TIMED:
            continue
        late = [
            f"{name} takes {_time(seen)} where {_time(target)} is the target"
            for name, seen, target in (
                ("the first token", each.first_token[1], state.first_token_target_s),
                ("each further token", each.between_tokens[1], state.between_tokens_target_s),
            )
            if seen is not None and target is not None and seen > target
        ]
        if late:
            yield Alert(
                kind="slow",
                level="warning",
                text=f"{each.model} is slow (p95 of {_MINUTES} minutes): {', and '.join(late)}.",
                advice="Start another engine of the model, or lower what one engine runs at once.",
                link=_model(each.model),
            )


def _records(facts: Facts) -> Iterator[Alert]:
    # What was seen last before Redis went away is no news of the clerk.
    since_s = None if "redis" in facts.away else facts.records_since_s
    if since_s is not None and facts.now_s - since_s >= _BEHIND_S:
        yield Alert(
            kind="clerk_behind",
            level="critical",
            text="Requests that end are not being recorded: the figures here are behind.",
            advice="See whether a clerk runs (a worker of the queue “default”) and the "
            "database is well. Nothing is lost meanwhile, and nothing is billed twice.",
            since_s=round(since_s),
        )
    if facts.records_dead:
        yield Alert(
            kind="dead_records",
            level="warning",
            text=f"{facts.records_dead} records could not be kept and were put aside.",
            advice="python manage.py dead_records lists them with their reasons.",
        )


def _late(batch: BatchState, now_s: float) -> Alert | None:
    if batch.forecast_s is not None:
        is_late = batch.forecast_s > batch.expires_at_s
    else:
        window_s = batch.expires_at_s - batch.created_at_s
        is_late = now_s > batch.created_at_s + _WINDOW_SHARE * window_s
    if not is_late or batch.ended >= batch.total:
        return None
    left = batch.total - batch.ended
    return Alert(
        kind="deadline",
        level="warning" if now_s < batch.expires_at_s else "critical",
        text=f"A batch of {batch.team or 'a team'} will not be done when its window ends: "
        f"{left} of {batch.total} rows are left.",
        advice=f"Start another engine of {batch.model or 'its models'}, or cancel work that can "
        "wait. What is left when the window ends expires and is not billed.",
        link=reverse("admin:batch_page", args=[batch.id]),
        since_s=None,
    )


def _balance(team: Short) -> Alert:
    link = reverse("admin:gateway_team_change", args=[team.team_id])
    if team.balance_micros <= 0:
        return Alert(
            kind="balance",
            level="critical",
            text=f"The balance of {team.name} is used up: its requests get 402.",
            advice="Top it up on the team's page, or make the team one that is not prepaid.",
            link=link,
        )
    return Alert(
        kind="balance",
        level="warning",
        text=f"{team.name} has {amount(team.balance_micros)} left, less than a day's use.",
        advice="Top it up on the team's page before its requests get 402.",
        link=link,
    )


def _model(model: str) -> str:
    return reverse("admin:inference_model_change", args=[quote(model)])


def _time(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"
