"""Stored responses, and the streams that group them."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString

from gateway.admin.cancelling import cancel_response
from gateway.admin.filters import TeamFilter, TimeFilter, uuid7_bounds
from gateway.admin.links import change_link, key_link, ledger_link, trail_link
from gateway.admin.money import units
from gateway.admin.pages import AskingAdmin, Question, RecordAdmin, RequestSearch, TeamColumn
from gateway.admin.theme import ChoiceFilter, OptionFilter, button, when_shown
from jobs.models import ResponseStream, StoredResponse

# As the indexes of one team's rows have it.
_NEWEST_OF_TEAM = ("-created_at", "-id")
_CANCEL = Question(
    action="cancel",
    title="Cancel these responses?",
    of_one="Cancel the response {row}?",
    text="Their callers are told at once; what was done until now is billed. This cannot be "
    "undone. Responses that are not in the background stay as they are.",
    yes="Cancel",
    no="Do not cancel",
)


class MadeFilter(TimeFilter):
    """By when they were made; ids come in the order of time."""

    bounds = uuid7_bounds


class OpenStatusFilter(OptionFilter):
    """Responses that have not ended: an index has them."""

    title = "status"
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """List the statuses before the end."""
        return [(status.value, status.label) for status in StoredResponse.OPEN]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Keep those of this status."""
        return queryset.filter(status=self.value()) if self.value() else queryset


@admin.register(StoredResponse)
class StoredResponseAdmin(TeamColumn, AskingAdmin, RequestSearch, RecordAdmin):
    """Responses that can be read again; the audit trail has what they say."""

    request_field = "pk"
    ordering = ["-id"]
    team_order = _NEWEST_OF_TEAM
    list_display = [
        *("created_at", "id", "status", "team", "model", "lane", "background", "cost"),
    ]
    list_display_links = ["created_at", "id"]
    list_filter = [OpenStatusFilter, MadeFilter, TeamFilter]
    actions = ["cancel"]
    actions_detail = ["cancel_this"]
    fields = [
        *("id", "request_record", "ledger_entry", "team", "key", "model", "lane", "background"),
        *("streamed", "previous_id", "stream_page", "custom_id", "status", "error_code"),
        *("error_message", "created_at", "started_at", "ended_at", "deadline_at", "expires_at"),
        *("cost", "number"),
    ]
    export_columns = (
        *("id", "created_at", "team_id", "key_id", "model", "lane", "background", "streamed"),
        *("status", "error_code", "error_message", "started_at", "ended_at", "cost_micros"),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[StoredResponse]:
        """Leave out what is large."""
        stored: QuerySet[StoredResponse] = super().get_queryset(request)
        return stored.defer("body", "items", "answer", "events")

    @admin.display(description="cost, in units")
    def cost(self, response: StoredResponse) -> str:
        """Return units; a dash if it was not billed."""
        return units(response.cost_micros)

    @admin.display(description="request")
    @when_shown
    def request_record(self, response: StoredResponse) -> SafeString | str:
        """Return the way to its row of the audit trail."""
        return trail_link(response.pk)

    @admin.display
    @when_shown
    def ledger_entry(self, response: StoredResponse) -> SafeString | str:
        """Return the way to what was billed for it."""
        return ledger_link(response.pk)

    @admin.display
    def key(self, response: StoredResponse) -> SafeString | str:
        """Return the way to its key."""
        return key_link(response.key_id)

    @admin.display(description="stream")
    def stream_page(self, response: StoredResponse) -> SafeString | str:
        """Return the way to its stream."""
        return change_link(response.stream) if response.stream else "-"

    @admin.action(description="Cancel the chosen responses", permissions=["cancel"])
    def cancel(
        self, request: HttpRequest, queryset: QuerySet[StoredResponse]
    ) -> HttpResponse | None:
        """Ask, and break off what runs in the background."""
        if not self.is_confirmed(request):
            return self.ask(request, queryset, _CANCEL)
        return self.carry_out(request, queryset, cancel_response, "Cancelled")

    @button("Cancel", permissions=["cancel"], icon="cancel", is_dangerous=True)
    def cancel_this(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask about the one whose page it is."""
        return self.ask_about(request, object_id, _CANCEL)

    def has_cancel_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may change responses."""
        return request.user.has_perm("jobs.change_storedresponse")


@admin.register(ResponseStream)
class ResponseStreamAdmin(TeamColumn, RequestSearch, RecordAdmin):
    """Named groups of background responses."""

    request_field = "pk"
    ordering = ["-id"]
    team_order = _NEWEST_OF_TEAM
    search_help_text = "The id of a stream."
    list_display = ["created_at", "id", "name", "status", "team"]
    list_display_links = ["created_at", "id"]
    list_filter = [("status", ChoiceFilter), MadeFilter, TeamFilter]
    fields = ["id", "name", "status", "team", "key_id", "created_at"]
    export_columns = ("id", "created_at", "team_id", "key_id", "name", "status")
