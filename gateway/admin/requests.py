"""The audit trail: every request, and one in whole."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import Truncator

from gateway.admin.filters import BatchFilter, KeyFilter, ModelFilter, TeamFilter, TimeFilter
from gateway.admin.links import (
    batch_link,
    change_link,
    kept_links,
    key_link,
    list_link,
    page_address,
    story_link,
    team_link,
)
from gateway.admin.money import units
from gateway.admin.pages import RecordAdmin, RequestSearch, row_of
from gateway.admin.screens.bill import tokens_of
from gateway.admin.screens.timeline import moments_of
from gateway.admin.theme import ChoiceFilter, OptionFilter, button, display, when_shown
from gateway.admin.transcript import transcript
from jobs.models import LedgerEntry, RequestRecord
from jobs.models.audit import NEWEST_OF_TEAM
from jobs.reports import billed_price

_WHY_CHARS = 90
_NO_BREAK = "\N{NO-BREAK SPACE}"
_WINDOWS = {"hour": 1, "day": 24, "week": 24 * 7, "month": 24 * 30}
_COLOURS = {
    RequestRecord.Status.RUNNING: "info",
    RequestRecord.Status.COMPLETED: "success",
    RequestRecord.Status.FAILED: "danger",
    RequestRecord.Status.CANCELLED: "warning",
}


class AdmittedFilter(OptionFilter):
    """By when they were admitted."""

    title = "admitted"
    parameter_name = "within"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """List the windows."""
        return [(name, f"within the last {name}") for name in _WINDOWS]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Keep what is young enough."""
        hours = _WINDOWS.get(self.value() or "")
        if hours is None:
            return queryset
        return queryset.filter(created_at__gte=timezone.now() - timedelta(hours=hours))


@admin.register(RequestRecord)
class RequestRecordAdmin(RequestSearch, RecordAdmin):
    """Who asked what, when, on which engine, with what outcome, and what it cost."""

    request_field = "pk"
    team_order = NEWEST_OF_TEAM
    list_display = [
        *("created_at", "story", "outcome", "why", "team", "served_by", "token_counts", "cost"),
    ]
    list_display_links = ["created_at"]
    list_filter = [
        ("status", ChoiceFilter),
        AdmittedFilter,
        TimeFilter,
        TeamFilter,
        ModelFilter,
        KeyFilter,
        BatchFilter,
    ]
    actions_list = ("failed_only", "export")
    actions_detail = ["whole_story"]
    fieldsets = [
        (
            "Who",
            {
                "fields": [
                    *("id", "team", "key", "client", "address", "session_id", "trace_id"),
                ]
            },
        ),
        (
            "What",
            {
                "fields": [
                    *("model", "requested_model", "dialect", "type", "batch", "lane", "streamed"),
                    *("max_tokens", "kept", "ignored_fields", "body_bytes", "body_sha256"),
                ]
            },
        ),
        (
            "How it went",
            {
                "fields": [
                    *("status", "ending", "detail", "error", "timeline"),
                    *("engine_host", "engine_id", "attempts", "answer_sha256", "seal_number"),
                ]
            },
        ),
        ("What it used", {"fields": ["tokens", "cost", "price"]}),
    ]
    said = ("What was said", {"fields": ["transcript"]})
    export_columns = (
        *("id", "created_at", "team_id", "team_name", "key_id", "key_name", "model"),
        *("requested_model", "dialect", "type", "lane", "streamed", "batch_id", "custom_id"),
        *("status", "ending", "detail", "error", "engine_host", "engine_id", "attempts"),
        *("taken_at", "first_token_at", "engine_ended_at", "closed_at"),
        *("input_tokens", "cached_tokens", "cache_written_tokens"),
        *("output_tokens", "thinking_tokens", "cost_micros"),
        *("client", "address", "session_id", "trace_id"),
    )

    def get_ordering(self, request: HttpRequest) -> Any:
        """Walk one batch's own index."""
        one_batch = request.GET.get(BatchFilter.parameter_name)
        return ["-id"] if one_batch else super().get_ordering(request)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Show what was said to those who may view bodies."""
        allowed = request.user.has_perm("jobs.view_requestbody")
        return [*self.fieldsets, *([self.said] if allowed else [])]

    @admin.display(description="cost, in units")
    def cost(self, record: RequestRecord) -> str:
        """Return units; a dash if it was not billed."""
        return units(record.cost_micros)

    @admin.display(description="request")
    def story(self, record: RequestRecord) -> SafeString:
        """Return the way to its story."""
        return story_link(record)

    @admin.display(description="why it failed")
    def why(self, record: RequestRecord) -> str | None:
        """Return what kept it from its end, in short; nothing for what ended well, or has not."""
        if record.status in (RequestRecord.Status.COMPLETED, RequestRecord.Status.RUNNING):
            return None
        what = (record.detail or record.ending).replace("_", " ")
        return Truncator(": ".join(filter(None, (what, record.error)))).chars(_WHY_CHARS)

    @admin.display(description="model, lane")
    def served_by(self, record: RequestRecord) -> str:
        """Return both."""
        return ", ".join(filter(None, (record.model, record.lane)))

    @admin.display(description="tokens")
    def token_counts(self, record: RequestRecord) -> str:
        """Return how long prompt and answer were."""
        counts = (f"{record.input_tokens:,} in", f"{record.output_tokens:,} out")
        return ", ".join(count.replace(" ", _NO_BREAK) for count in counts)

    @display(description="status", label=_COLOURS)
    def outcome(self, record: RequestRecord) -> tuple[str, str]:
        """Return the status in its colour."""
        return record.status, record.get_status_display()

    @admin.display
    def team(self, record: RequestRecord) -> SafeString:
        """Return the way to the team, under the name it had."""
        return team_link(record.team_id, record.team_name)

    @admin.display
    def key(self, record: RequestRecord) -> SafeString | str:
        """Return the ways to the key, under the name it had, and to all that it asked."""
        if record.key_id is None:
            return record.key_name or "-"
        every = list_link(RequestRecord, "all of its requests", key=record.key_id)
        return format_html("{} ({})", key_link(record.key_id, record.key_name), every)

    @admin.display
    def batch(self, record: RequestRecord) -> SafeString | str:
        """Return the way to the batch that it was a row of."""
        return batch_link(record.batch_id)

    @admin.display(description="also kept")
    @when_shown
    def kept(self, record: RequestRecord) -> SafeString | str:
        """Return the ways to its row of work and its stored response, if they are there still."""
        ways = kept_links(record.pk).values()
        return format_html_join(", ", "{}", ((way,) for way in ways)) or "-"

    @admin.display
    def timeline(self, record: RequestRecord) -> SafeString:
        """Return its moments, and how long after the admission each was."""
        rows = [
            (name, f"{at:%Y-%m-%d %H:%M:%S.%f}"[:-3], f"+{after_s:,.3f} s")
            for name, at, after_s in moments_of(record)
        ]
        return _table(rows)

    @admin.display
    def tokens(self, record: RequestRecord) -> SafeString:
        """Return its tokens by kind."""
        rows = [(kind, f"{count:,}") for kind, count in tokens_of(record)]
        return _table(rows)

    @admin.display(description="price version")
    @when_shown
    def price(self, record: RequestRecord) -> SafeString | str:
        """Return the version that it was billed by, and the way to its ledger entry."""
        entry = LedgerEntry.objects.filter(request_id=record.pk).first()
        if entry is None:
            return "not billed"
        version = billed_price(record.pk)
        name = (
            f"{version.model} from {version.effective_from:%Y-%m-%d %H:%M}" if version else "free"
        )
        return format_html("{} ({})", name, change_link(entry, f"entry {entry.number}"))

    @admin.display(description="SHA-256 of the body")
    def body_sha256(self, record: RequestRecord) -> str:
        """Return it in hexadecimal."""
        return bytes(record.body_digest).hex() or "-"

    @admin.display(description="SHA-256 of the answer")
    def answer_sha256(self, record: RequestRecord) -> str:
        """Return it in hexadecimal."""
        return bytes(record.answer_digest).hex() or "-"

    @admin.display(description="seal")
    def seal_number(self, record: RequestRecord) -> str:
        """Return the seal over it."""
        return "not sealed yet" if record.seal_id is None else str(record.seal_id)

    @button("Failed only", permissions=["view"], icon="error")
    def failed_only(self, request: HttpRequest) -> HttpResponse:
        """Lead to those of the list, as it is narrowed, that failed."""
        narrowed = request.GET.copy()
        narrowed.pop("p", None)
        narrowed["status__exact"] = RequestRecord.Status.FAILED
        return redirect(f"{page_address(self.model, 'changelist')}?{narrowed.urlencode()}")

    @button("What happened", permissions=["view"], icon="timeline")
    def whole_story(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Lead to the page that tells it."""
        return redirect("admin:request_page", row_of(self, request, object_id).pk)

    @admin.display(description="")
    @when_shown
    def transcript(self, record: RequestRecord) -> SafeString:
        """Return body and answer, as far as they are kept."""
        return transcript(record)


def _table(rows: Sequence[tuple[str, ...]]) -> SafeString:
    lines = (
        (name, format_html_join("", "<td>{}</td>", ([cell] for cell in cells)))
        for name, *cells in rows
    )
    body = format_html_join("", "<tr><th>{}</th>{}</tr>", lines)
    return format_html("<table>{}</table>", body)
