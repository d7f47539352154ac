"""Batches: how far each is, what it cost, and the end of it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from gateway.admin.cancelling import cancel_batch
from gateway.admin.filters import TeamFilter, TimeFilter, moment_text
from gateway.admin.links import change_link, key_link, list_link, live_link, team_link
from gateway.admin.money import units
from gateway.admin.pages import AskingAdmin, Question, RecordAdmin, RequestSearch, row_of
from gateway.admin.theme import ChoiceFilter, button, display
from gateway.admin.waiting import Wait, for_batches, tell_waits
from jobs.models import Batch, LedgerEntry, RequestRecord, StoredFile, Work

_CANCEL = Question(
    action="cancel",
    title="Cancel these batches?",
    of_one="Cancel the batch {row} of {row.team_name}?",
    text="Rows that run end and are billed; no others begin. This cannot be undone.",
    yes="Cancel",
    no="Do not cancel",
)
_COLOURS = {
    Batch.Status.VALIDATING: "",
    Batch.Status.COMPLETED: "success",
    Batch.Status.FAILED: "danger",
    Batch.Status.EXPIRED: "danger",
    Batch.Status.CANCELLED: "warning",
    Batch.Status.CANCELLING: "warning",
    Batch.Status.IN_PROGRESS: "info",
    Batch.Status.FINALIZING: "info",
}


@admin.register(Batch)
class BatchAdmin(AskingAdmin, RequestSearch, RecordAdmin):
    """Every batch, how far it is, and what it cost until now."""

    request_field = "pk"
    search_help_text = "The id of a batch, such as batch_… or msgbatch_… ."
    list_display = [
        *("created_at", "batch", "state", "rows_ended", "team", "model", "deadline", "cost"),
    ]
    list_display_links = ["created_at"]
    list_filter = [
        ("status", ChoiceFilter),
        ("form", ChoiceFilter),
        TimeFilter,
        TeamFilter,
    ]
    actions = ["cancel"]
    actions_detail = ["live_page", "cancel_this"]
    fieldsets = [
        ("Who", {"fields": ["id", "team", "key", "client", "address"]}),
        (
            "What",
            {
                "fields": [
                    *("form", "endpoint", "model", "metadata", "idempotency_key"),
                    *("input", "output", "error_lines"),
                ]
            },
        ),
        (
            "How it goes",
            {
                "fields": [
                    *("status", "progress", "completed", "failed", "cancelled", "expired"),
                    *("errors", "rows", "requests", "ledger"),
                ]
            },
        ),
        (
            "When",
            {
                "fields": [
                    *("created_at", "in_progress_at", "cancelling_at", "finalizing_at"),
                    *("ended_at", "expires_at", "archived_at"),
                ]
            },
        ),
        (
            "What it used",
            {
                "fields": [
                    *("input_tokens", "cached_tokens", "output_tokens", "thinking_tokens", "cost"),
                ]
            },
        ),
    ]
    export_columns = (
        *("id", "created_at", "team_id", "team_name", "key_id", "key_name", "form", "endpoint"),
        *("model", "status", "total", "completed", "failed", "cancelled", "expired"),
        *("input_tokens", "cached_tokens", "output_tokens", "thinking_tokens", "cost_micros"),
        *("in_progress_at", "ended_at", "expires_at"),
    )

    @display(description="status", label=_COLOURS)
    def state(self, batch: Batch) -> tuple[str, str]:
        """Return the status in its colour."""
        return batch.status, batch.get_status_display()

    @admin.display
    def batch(self, batch: Batch) -> SafeString:
        """Return the way to its live page."""
        return live_link(batch)

    @admin.display(description="rows ended")
    def rows_ended(self, batch: Batch) -> str:
        """Return how far it is, how many of its rows have no answer, and what it waits for."""
        without = {name: getattr(batch, name) for name in ("failed", "cancelled", "expired")}
        parts = [f"{count:,} {name}" for name, count in without.items() if count]
        wait: Wait | None = getattr(batch, "wait", None)
        return ", ".join(
            [self.progress(batch), *parts, *([f"waiting: {wait.text}"] if wait else ())]
        )

    @admin.display(description="deadline")
    def deadline(self, batch: Batch) -> datetime | None:
        """Return when its window ends; nothing once it is over."""
        return None if batch.ended_at else batch.expires_at

    @admin.display
    def team(self, batch: Batch) -> SafeString:
        """Return the way to the team, under the name it had."""
        return team_link(batch.team_id, batch.team_name)

    @admin.display
    def key(self, batch: Batch) -> SafeString | str:
        """Return the way to the key, under the name it had."""
        return key_link(batch.key_id, batch.key_name)

    @admin.display
    def progress(self, batch: Batch) -> str:
        """Return how many rows have ended, of how many."""
        share = f" ({batch.ended_rows / batch.total:.0%})" if batch.total else ""
        return f"{batch.ended_rows:,} of {batch.total:,}{share}"

    @admin.display(description="cost, in units")
    def cost(self, batch: Batch) -> str:
        """Return units."""
        return units(batch.cost_micros)

    @admin.display
    def rows(self, batch: Batch) -> SafeString:
        """Return the ways to its rows."""
        every = list_link(Work, "all", batch=batch.pk)
        failed = list_link(Work, "failed", batch=batch.pk, outcome=Work.Outcome.FAILED)
        return format_html("{}, {}", every, failed)

    @admin.display
    def requests(self, batch: Batch) -> SafeString:
        """Return the way to its requests in the audit trail."""
        return list_link(RequestRecord, "in the audit trail", batch=batch.pk)

    @admin.display
    def ledger(self, batch: Batch) -> SafeString:
        """Return the way to what its team was billed in its time."""
        until = (batch.ended_at or timezone.now()) + timedelta(minutes=2)
        return list_link(
            LedgerEntry,
            "of its team, in its time",
            team=batch.team_id,
            since=moment_text(batch.created_at),
            until=moment_text(until),
        )

    @admin.display(description="input file")
    def input(self, batch: Batch) -> SafeString | str:
        """Return the way to it."""
        return _file(batch.input_file)

    @admin.display(description="output file")
    def output(self, batch: Batch) -> SafeString | str:
        """Return the way to it."""
        return _file(batch.output_file)

    @admin.display(description="error file")
    def error_lines(self, batch: Batch) -> SafeString | str:
        """Return the way to it."""
        return _file(batch.error_file)

    @admin.action(description="Cancel the chosen batches", permissions=["cancel"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[Batch]) -> HttpResponse | None:
        """Ask, and let rows that run end, and begin no others."""
        if not self.is_confirmed(request):
            return self.ask(request, queryset, _CANCEL)
        return self.carry_out(request, queryset, cancel_batch, "Cancelled")

    @button("Progress and results", permissions=["view"], icon="timeline")
    def live_page(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Lead to the page that shows how it gets on, its errors and its results."""
        return redirect("admin:batch_page", row_of(self, request, object_id).pk)

    @button("Cancel", permissions=["cancel"], icon="cancel", is_dangerous=True)
    def cancel_this(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask about the one whose page it is."""
        return self.ask_about(request, object_id, _CANCEL)

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Find out why those of the page stand still that do."""
        response = super().changelist_view(request, extra_context)
        tell_waits(response, for_batches)
        return response

    def has_cancel_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may change batches."""
        return request.user.has_perm("jobs.change_batch")


def _file(file: StoredFile | None) -> SafeString | str:
    return change_link(file, file.filename) if file else "-"
