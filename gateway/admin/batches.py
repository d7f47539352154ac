"""Batches and their rows, files, and stored responses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from gateway.admin.money import units
from gateway.admin.pages import RecordAdmin, RequestSearch, TeamFilter
from gateway.request_ids import parse_request_id
from jobs import batches, responses
from jobs.models import (
    Batch,
    RequestRecord,
    ResponseStream,
    StoredFile,
    StoredResponse,
    Work,
)

# As the indexes of one team's rows have it.
_NEWEST_OF_TEAM = ("-created_at", "-id")


class OwnerFilter(TeamFilter):
    """By team."""

    field = "team_id"


class BatchFilter(admin.SimpleListFilter):
    """The rows of one batch: its page leads here."""

    title = "batch"
    parameter_name = "batch"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """List nothing but what is asked for."""
        value = request.GET.get(self.parameter_name)
        return [(value, value)] if value else []

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Keep the batch's rows."""
        value = self.value()
        if value is None:
            return queryset
        batch_id = parse_request_id(value)
        return queryset.filter(batch_id=batch_id) if batch_id else queryset.none()


class OutcomeFilter(admin.SimpleListFilter):
    """By how rows ended, within one batch: of all rows, this would have to read each."""

    title = "outcome"
    parameter_name = "outcome"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[Any]:
        """List the outcomes where one batch is shown."""
        return Work.Outcome.choices if BatchFilter.parameter_name in request.GET else []

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Keep the rows that ended so."""
        return queryset.filter(outcome=self.value()) if self.value() else queryset


class OpenStatusFilter(admin.SimpleListFilter):
    """Responses that have not ended: an index has them."""

    title = "status"
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """List the statuses before the end."""
        return [(status.value, status.label) for status in StoredResponse.OPEN]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Keep those of this status."""
        return queryset.filter(status=self.value()) if self.value() else queryset


def _cancel_each(
    site: admin.ModelAdmin[Any],
    request: HttpRequest,
    chosen: QuerySet[Any],
    cancel: Callable[[Any], Any],
) -> None:
    """Cancel what is chosen and say of how many that was; what has ended stays as it is.

    `cancel` returns how one is then, or None if it is gone.
    """
    before = list(chosen)
    after = [cancel(each) for each in before]
    cancelled = sum(
        now is not None and now.status != was.status for was, now in zip(before, after, strict=True)
    )
    site.message_user(
        request,
        f"Cancelled {cancelled} of {len(before)}.",
        messages.SUCCESS if cancelled else messages.WARNING,
    )


def _trail(request_id: UUID) -> SafeString | str:
    """Return the way to a request's row of the audit trail.

    There is none yet of what has not ended, and none ever of rows that were never run because
    they were cancelled or had expired.
    """
    if not RequestRecord.objects.filter(pk=request_id).exists():
        return "not in the audit trail"
    address = reverse("admin:jobs_requestrecord_change", args=[request_id])
    return format_html('<a href="{}">in the audit trail</a>', address)


@admin.register(Batch)
class BatchAdmin(RequestSearch, RecordAdmin):
    """Every batch, how far it is, and what it cost until now."""

    request_field = "pk"
    search_help_text = "The id of a batch, such as batch_… or msgbatch_… ."
    list_display = [
        *("created_at", "id", "team_name", "form", "endpoint", "model", "status", "progress"),
        *("failed", "cost", "expires_at"),
    ]
    list_display_links = ["id"]
    list_filter = ["status", "form", OwnerFilter]
    actions = ["cancel"]
    fieldsets = [
        ("Who", {"fields": ["id", "team_name", "key_name", "client", "address"]}),
        (
            "What",
            {
                "fields": [
                    *("form", "endpoint", "model", "metadata", "idempotency_key"),
                    *("input_file", "output_file", "error_file"),
                ]
            },
        ),
        (
            "How it goes",
            {
                "fields": [
                    *("status", "progress", "completed", "failed", "cancelled", "expired"),
                    *("errors", "rows"),
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
        address = reverse("admin:jobs_work_changelist")
        return format_html(
            '<a href="{}?batch={}">all</a>, <a href="{}?batch={}&outcome=failed">failed</a>',
            *(address, batch.pk, address, batch.pk),
        )

    @admin.action(description="Cancel the chosen batches", permissions=["cancel"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[Batch]) -> None:
        """Let rows that run end, and begin no others."""
        _cancel_each(self, request, queryset, lambda batch: batches.cancel(batch.pk))

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        """Whoever may change batches."""
        return request.user.has_perm("jobs.change_batch")


@admin.register(Work)
class WorkAdmin(RequestSearch, RecordAdmin):
    """Rows of batches and background responses: what waits, what runs, and how rows ended."""

    request_field = "pk"
    list_display = [
        *("id", "batch_id", "line", "custom_id", "model", "lane", "state", "outcome"),
        *("attempts", "deaths", "preemptions", "error"),
    ]
    list_filter = ["state", BatchFilter, OutcomeFilter]
    fields = [
        *("id", "request_record", "batch", "line", "custom_id", "dialect", "model", "lane"),
        *("rank", "created_at", "deadline_at", "state", "worker_id", "attempts", "deaths"),
        *("preemptions", "cancel_requested", "not_before", "taken_at", "ended_at"),
        *("outcome", "error"),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Work]:
        """Leave out what is large."""
        work: QuerySet[Work] = super().get_queryset(request)
        return work.defer("request", "answer", "echo")

    def get_ordering(self, request: HttpRequest) -> Any:
        """List one batch's rows as they were sent."""
        return ["line"] if BatchFilter.parameter_name in request.GET else ["-id"]

    @admin.display
    def error(self, work: Work) -> str:
        """Return why it failed."""
        return f"{work.error_code}: {work.error_message}" if work.error_code else "-"

    @admin.display(description="request")
    def request_record(self, work: Work) -> SafeString | str:
        """Return the way to its row of the audit trail."""
        return _trail(work.pk)


@admin.register(StoredFile)
class StoredFileAdmin(RequestSearch, RecordAdmin):
    """Files that teams have uploaded, and those that batches have written for them."""

    request_field = "pk"
    # Ids come in the order of time.
    ordering = ["-id"]
    team_order = _NEWEST_OF_TEAM
    search_help_text = "The id of a file, such as file-… ."
    list_display = [
        *("created_at", "id", "filename", "purpose", "size_bytes", "lines", "team_id"),
        "expires_at",
    ]
    list_display_links = ["id"]
    list_filter = ["purpose", OwnerFilter]
    fields = [
        *("id", "filename", "purpose", "size_bytes", "lines", "sha256", "team_id", "key_id"),
        *("created_at", "expires_at", "name"),
    ]

    @admin.display(description="SHA-256")
    def sha256(self, file: StoredFile) -> str:
        """Return it in hexadecimal."""
        return bytes(file.digest).hex()


@admin.register(StoredResponse)
class StoredResponseAdmin(RequestSearch, RecordAdmin):
    """Responses that can be read again; the audit trail has what they say."""

    request_field = "pk"
    ordering = ["-id"]
    team_order = _NEWEST_OF_TEAM
    list_display = [
        *("created_at", "id", "team_id", "model", "lane", "status", "background", "streamed"),
        "cost",
    ]
    list_display_links = ["id"]
    list_filter = [OpenStatusFilter, OwnerFilter]
    actions = ["cancel"]
    fields = [
        *("id", "request_record", "team_id", "key_id", "model", "lane", "background", "streamed"),
        *("previous_id", "stream", "custom_id", "status", "error_code", "error_message"),
        *("created_at", "started_at", "ended_at", "deadline_at", "expires_at", "cost", "number"),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[StoredResponse]:
        """Leave out what is large."""
        stored: QuerySet[StoredResponse] = super().get_queryset(request)
        return stored.defer("body", "items", "answer", "events")

    @admin.display(description="cost, in units")
    def cost(self, response: StoredResponse) -> str:
        """Return units; a dash if it was not billed."""
        return units(response.cost_micros)

    @admin.display(description="request")
    def request_record(self, response: StoredResponse) -> SafeString | str:
        """Return the way to its row of the audit trail."""
        return _trail(response.pk)

    @admin.action(description="Cancel the chosen responses", permissions=["cancel"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[StoredResponse]) -> None:
        """Break off what runs in the background."""
        _cancel_each(
            self, request, queryset, lambda each: responses.cancel(str(each.pk), each.team_id)
        )

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        """Whoever may change responses."""
        return request.user.has_perm("jobs.change_storedresponse")


@admin.register(ResponseStream)
class ResponseStreamAdmin(RequestSearch, RecordAdmin):
    """Named groups of background responses."""

    request_field = "pk"
    ordering = ["-id"]
    team_order = _NEWEST_OF_TEAM
    search_help_text = "The id of a stream."
    list_display = ["created_at", "id", "name", "status", "team_id"]
    list_display_links = ["id"]
    list_filter = ["status", OwnerFilter]
