"""Why work that waits does not begin, as far as one look at the engines and the catalogue tells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import QuerySet, Sum
from django.http import HttpResponse
from django.utils import timezone

from gateway.admin.heartbeats import read_reports
from gateway.teams import spending_terms
from inference.models import Model
from inference.request import Lane
from inference.transport.frames import EngineReport, EngineState
from jobs.ledger import AccountState, read_state
from jobs.models import Batch, Work
from jobs.quota.holds import Terms
from jobs.work.policy import URGENT_RANK, rank

_NO_REDIS = "Redis does not answer, and so no engine can be seen"
_STATES = {
    EngineState.LOADING: "the engine of {model} is still loading",
    EngineState.DRAINING: "the engine of {model} is draining, and takes nothing new",
    EngineState.FAILED: "the engine of {model} does not serve",
}
# Rows of batches wait under these.
_RANKS = (URGENT_RANK, rank(Lane.BATCH))


class Wait(NamedTuple):
    """What something waits for, in words for the middle of a sentence, and on which model's side.

    Without a model it waits for something else than engines.
    """

    text: str
    model: str = ""


class Look(NamedTuple):
    """What engines say at one moment, None if Redis does not; and the models that are enabled."""

    reports: list[EngineReport] | None
    enabled: frozenset[str]

    def serves(self, model: str) -> bool:
        """Whether an engine of the model is ready."""
        return any(
            report.model == model and report.state is EngineState.READY
            for report in self.reports or ()
        )

    def unserved(self) -> Iterator[Wait]:
        """Yield the enabled models that no engine is ready for, each with why."""
        for model in sorted(self.enabled):
            wait = None if self.serves(model) else self.wait_for(model)
            if wait is not None:
                yield wait

    def wait_for(self, model: str) -> Wait | None:
        """Return why work for a model does not begin; None if nothing is known to be in its way."""
        if self.reports is None:
            return Wait(_NO_REDIS)
        own = [report for report in self.reports if report.model == model]
        ready = [report for report in own if report.state is EngineState.READY]
        text = _full(model, ready) if ready else self._unserved(model, own)
        return Wait(text, model) if text else None

    def _unserved(self, model: str, own: list[EngineReport]) -> str:
        for state, text in _STATES.items():
            reasons = [report.reason for report in own if report.state is state]
            if reasons:
                reason = next(filter(None, reasons), "")
                return text.format(model=model) + (f": {reason}" if reason else "")
        if model not in self.enabled:
            return f"no engine serves {model}, which is disabled or gone from the catalogue"
        return f"no engine serves {model}"


def look() -> Look:
    """Look at what engines say of themselves, and at the catalogue."""
    enabled = Model.objects.filter(enabled=True).values_list("pk", flat=True)
    return Look(read_reports(), frozenset(enabled))


def for_batch(batch: Batch) -> Wait | None:
    """Return why a batch stands still, or one of its models' rows do; None if it gets on."""
    if not _has_rows_left(batch):
        return None
    seen = look()
    running = _running([batch.pk]).get(batch.pk, 0)
    if batch.model:
        if running or batch.ended_rows + running >= batch.total:
            return None
        return seen.wait_for(batch.model) or _money(batch)
    for model in Model.objects.values_list("pk", flat=True):
        # While some of its rows run, others may be for a model that nobody serves.
        wait = seen.wait_for(model) if not (running and seen.serves(model)) else None
        if wait and _waiting_rows(batch, model).exists():
            return wait
    return None if running else _money(batch)


def for_batches(batches: Iterable[Batch]) -> dict[UUID, Wait]:
    """Return why those stand still that do; of batches for several models nothing is told."""
    open_ = [batch for batch in batches if batch.model and _has_rows_left(batch)]
    if not open_:
        return {}
    seen = look()
    running = _running([batch.pk for batch in open_])
    waits = {
        batch.pk: seen.wait_for(batch.model) for batch in open_ if not running.get(batch.pk, 0)
    }
    return {pk: wait for pk, wait in waits.items() if wait}


def for_work(rows: Iterable[Work]) -> dict[UUID, Wait]:
    """Return why pieces of work that wait do not begin."""
    pending = [row for row in rows if row.state == Work.State.PENDING]
    if not pending:
        return {}
    seen = look()
    waits = {row.pk: seen.wait_for(row.model) or _pause(row) for row in pending}
    return {pk: wait for pk, wait in waits.items() if wait}


def tell_waits(response: HttpResponse, waits_of: Callable[[list[Any]], dict[UUID, Wait]]) -> None:
    """Give each row of a list's page that stands still its `wait`, before the page is written."""
    shown = (getattr(response, "context_data", None) or {}).get("cl")
    if shown is None:
        return
    waits = waits_of(list(shown.result_list))
    for row in shown.result_list:
        row.wait = waits.get(row.pk)


def _full(model: str, ready: list[EngineReport]) -> str:
    """Say whom the engines have no place left for work beside; empty if one has."""
    used = [{lane: done.permits for lane, done in each.figures.lanes.items()} for each in ready]
    kept = [each.figures.kept_permits for each in ready]
    free = [
        each.capacity - sum(lanes.values()) - spared
        for each, lanes, spared in zip(ready, used, kept, strict=True)
    ]
    if any(places > 0 for places in free):
        return ""
    if any(lanes.get(Lane.BATCH) for lanes in used):
        return f"the engines of {model} run other work first"
    return f"the engines of {model} are full of realtime work"


def _pause(row: Work) -> Wait | None:
    """Say until when work is left alone that could not be done."""
    if row.not_before is None or row.not_before <= timezone.now():
        return None
    return Wait(f"it could not be done, and is tried again at {row.not_before:%H:%M:%S} UTC")


def _has_rows_left(batch: Batch) -> bool:
    return batch.status == Batch.Status.IN_PROGRESS and batch.ended_rows < batch.total


def _running(batch_ids: list[UUID]) -> dict[UUID | None, int]:
    """Return how many rows run of each batch; what runs is never many, whatever waits."""
    running = Work.objects.filter(state=Work.State.RUNNING).values_list("batch_id", flat=True)
    wanted = set(batch_ids)
    counted: dict[UUID | None, int] = {}
    for batch_id in running:
        if batch_id in wanted:
            counted[batch_id] = counted.get(batch_id, 0) + 1
    return counted


def _waiting_rows(batch: Batch, model: str) -> QuerySet[Work]:
    # As the index of what waits has them: however many rows have ended, they are not read.
    return Work.objects.filter(
        state=Work.State.PENDING,
        model=model,
        rank__in=_RANKS,
        team_id=batch.team_id,
        batch=batch,
    )


def _money(batch: Batch) -> Wait | None:
    """Say whether the team's money would do, were it not held for what it has running.

    Where it would not do either way, rows fail and do not wait.
    """
    terms = spending_terms([batch.team_id]).get(batch.team_id)
    if terms is None or terms == Terms():
        return None
    first = _waiting_rows(batch, batch.model).values_list("hold_micros", flat=True).first()
    if not first:
        return None
    held = Work.objects.filter(state=Work.State.RUNNING, team_id=batch.team_id).aggregate(
        held=Sum("hold_micros")
    )["held"]
    if not held or held + first <= _left_micros(terms, read_state(batch.team_id)):
        return None
    return Wait(f"what {batch.team_name or 'the team'} may spend is held for what it has running")


def _left_micros(terms: Terms, state: AccountState) -> int:
    """Return what a team may still spend; at least one of the terms says something."""
    left = [state.balance_micros] if terms.prepaid else []
    if terms.daily_cap_micros is not None:
        left.append(terms.daily_cap_micros - state.day_spent_micros)
    if terms.monthly_cap_micros is not None:
        left.append(terms.monthly_cap_micros - state.month_spent_micros)
    return min(left)
