"""A batch: sent in the browser, watched while it runs, its errors read, its results taken."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from gateway.admin.cancelling import cancel_batch
from gateway.admin.download import download
from gateway.admin.money import units
from gateway.admin.screens.batch_lines import lines_of
from gateway.admin.screens.key_views import key_options, payer_of, payers
from gateway.admin.screens.reasons import row_says
from gateway.admin.screens.view import note, screen, show
from gateway.admin.waiting import for_batch
from gateway.batches.endpoints import ENDPOINTS
from gateway.models import Team
from gateway.request_ids import parse_request_id
from gateway.session_keys import Purpose
from jobs.models import Batch, Work

_ROWS = 50
_LINE_DIGITS = 9
# As of each API, so that an id can be pasted into its client.
_PREFIXES: dict[str, str] = {Batch.Form.OPENAI: "batch_", Batch.Form.ANTHROPIC: "msgbatch_"}
_CANCELLABLE = (Batch.Status.VALIDATING, Batch.Status.IN_PROGRESS)
_BAD = (Work.Outcome.FAILED, Work.Outcome.EXPIRED, Work.Outcome.CANCELLED)


class BadRow(NamedTuple):
    """A row that ended without an answer."""

    id: UUID
    line: int
    custom_id: str
    outcome: str
    error_code: str
    error_message: str

    @property
    def why(self) -> str:
        """Why it has none, on one line."""
        return row_says(self.outcome, self.error_code, self.error_message)


@screen("gateway.add_apikey")
@require_GET
def new(request: HttpRequest) -> HttpResponse:
    """Offer the form: the browser sends the file through the API, with a key for that alone."""
    return show(
        request,
        "gateway/batch_new.html",
        "New batch",
        teams=payers(),
        payer=payer_of(request),
        endpoints=list(ENDPOINTS),
        options=key_options(Purpose.BATCH_UPLOAD)
        # The script puts the id of the batch in place of the last part.
        | {"batch_url": reverse("admin:batch_page", args=["ID"])},
    )


@screen("jobs.view_batch")
@require_GET
def one(request: HttpRequest, batch_id: str) -> HttpResponse:
    """Show one batch, by its id with or without what the APIs write before it."""
    batch = _find(batch_id)
    may = request.user.has_perm
    after = _line(request.GET.get("after", ""))
    bad = _bad_rows(batch, after)
    return show(
        request,
        "gateway/batch.html",
        f"Batch {batch.pk}",
        batch=batch,
        name=f"{_PREFIXES.get(batch.form, '')}{batch.pk}",
        cost=units(batch.cost_micros),
        wait=for_batch(batch),
        without_answer=batch.failed + batch.cancelled + batch.expired,
        bad_rows=bad[:_ROWS],
        next_after=bad[_ROWS - 1].line if len(bad) > _ROWS else None,
        after=after,
        may_cancel=may("jobs.change_batch") and batch.status in _CANCELLABLE,
        may_download=may("jobs.view_requestbody") and not _keeps_nothing(batch),
    )


@screen("jobs.change_batch")
@require_http_methods(["GET", "POST"])
def cancel(request: HttpRequest, batch_id: str) -> HttpResponse:
    """Ask first, then let rows that run end, and begin no others."""
    batch = _find(batch_id)
    if request.method != "POST":
        title = f"Cancel the batch {batch.pk} of {batch.team_name}?"
        return show(request, "gateway/batch_cancel.html", title, batch=batch)
    if cancel_batch(batch):
        note(request, batch, "Cancelled.")
        messages.success(request, _cancelled(batch))
    else:
        messages.warning(
            request, "It was over, or had been cancelled, already; nothing has changed."
        )
    return redirect("admin:batch_page", batch.pk)


@screen("jobs.view_batch", "jobs.view_requestbody")
@require_GET
def lines(request: HttpRequest, batch_id: str, *, completed: bool) -> HttpResponseBase:
    """Send what is there by now: the rows with an answer, or those that ended without."""
    batch = _find(batch_id)
    if _keeps_nothing(batch):
        raise PermissionDenied("The team has zero data retention.")
    name = f"batch_{batch.pk}_{'results' if completed else 'errors'}.jsonl"
    return download(request, lines_of(batch, completed=completed), name, "application/x-ndjson")


def _cancelled(batch: Batch) -> str:
    """Say what became of a batch's rows as it was cancelled."""
    if left := batch.total - batch.ended_rows:
        rows = f"the {left:,} rows that run" if left > 1 else "the row that runs"
        return f"Cancelled: {rows} may end, no others begin."
    if not batch.cancelled:
        return "Cancelled: none of its rows had begun."
    rows = f"all {batch.cancelled:,} rows that waited are" if batch.cancelled > 1 else "a row is"
    return f"Cancelled: {rows} cancelled, and none was running."


def _find(batch_id: str) -> Batch:
    wanted = parse_request_id(batch_id)
    rows = Batch.objects.select_related("input_file")
    batch = rows.filter(pk=wanted).first() if wanted else None
    if batch is None:
        raise Http404(f"there is no batch {batch_id}")
    return batch


def _keeps_nothing(batch: Batch) -> bool:
    return Team.objects.filter(pk=batch.team_id, zero_data_retention=True).exists()


def _bad_rows(batch: Batch, after: int) -> list[BadRow]:
    """Return a page of the rows without an answer, and one more if there are more."""
    if not batch.failed + batch.cancelled + batch.expired:
        return []
    rows = Work.objects.filter(batch=batch, line__gt=after, outcome__in=_BAD).order_by("line")
    return [BadRow(*row) for row in rows.values_list(*BadRow._fields)[: _ROWS + 1]]


def _line(text: str) -> int:
    """Return the line of the last row of the page before; 0 for the first page."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _LINE_DIGITS else 0
