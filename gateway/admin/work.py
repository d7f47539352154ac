"""Rows of batches and background responses: what waits, what runs, and how rows ended."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString

from gateway.admin.filters import BatchFilter
from gateway.admin.links import batch_link, ledger_link, trail_link
from gateway.admin.pages import AskingAdmin, Question, RecordAdmin, RequestSearch, TeamColumn
from gateway.admin.screens.reasons import row_says
from gateway.admin.theme import ChoiceFilter, OptionFilter, button, when_shown
from gateway.admin.waiting import Wait, for_work, tell_waits
from jobs.models import Work
from jobs.work.requeue import requeue

_REQUEUE = Question(
    action="requeue",
    title="Put this work back into the queue?",
    of_one="Put the piece of work {row} back into the queue?",
    text="The next engine with room takes it, and begins it anew. Work that an engine runs now is "
    "taken from it; what the engine has done of it so far is lost, and is not billed. Work that "
    "waits for its next try is tried at once. Work that has ended stays as it is.",
    yes="Put back",
)


class OutcomeFilter(OptionFilter):
    """By how rows ended, within one batch: of all rows, this would have to read each."""

    title = "outcome"
    parameter_name = "outcome"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[Any]:
        """List the outcomes where one batch is shown."""
        return Work.Outcome.choices if request.GET.get(BatchFilter.parameter_name) else []

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Keep the rows that ended so."""
        return queryset.filter(outcome=self.value()) if self.value() else queryset


@admin.register(Work)
class WorkAdmin(TeamColumn, AskingAdmin, RequestSearch, RecordAdmin):
    """Each row, without what it asks and answers."""

    request_field = "pk"
    list_display = [
        *("id", "came_to", "error", "model", "batch_page", "line", "custom_id"),
    ]
    list_filter = [("state", ChoiceFilter), BatchFilter, OutcomeFilter]
    actions = ["requeue"]
    actions_detail = ["requeue_this"]
    fields = [
        *("id", "request_record", "ledger_entry", "batch_page", "line", "custom_id", "team"),
        *("dialect", "model", "lane", "rank", "created_at", "deadline_at", "state", "worker_id"),
        *("attempts", "deaths", "preemptions", "cancel_requested", "not_before", "taken_at"),
        *("ended_at", "outcome", "error"),
    ]
    export_columns = (
        *("id", "batch_id", "line", "custom_id", "team_id", "key_id", "dialect", "model", "lane"),
        *("state", "outcome", "attempts", "deaths", "preemptions", "created_at", "deadline_at"),
        *("taken_at", "ended_at", "error_code", "error_message"),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Work]:
        """Leave out what is large."""
        work: QuerySet[Work] = super().get_queryset(request)
        return work.defer("request", "answer", "echo")

    def get_ordering(self, request: HttpRequest) -> Any:
        """List one batch's rows as they were sent."""
        return ["line"] if request.GET.get(BatchFilter.parameter_name) else ["-id"]

    @admin.display(description="state")
    def came_to(self, work: Work) -> str:
        """Return how far it is and what it waits for, or how it ended."""
        wait: Wait | None = getattr(work, "wait", None)
        if wait:
            return f"{work.get_state_display()}: {wait.text}"
        return work.get_outcome_display() if work.outcome else work.get_state_display()

    @admin.display
    def error(self, work: Work) -> str:
        """Return why it has no answer."""
        return row_says(work.outcome, work.error_code, work.error_message) or "-"

    @admin.display(description="request")
    @when_shown
    def request_record(self, work: Work) -> SafeString | str:
        """Return the way to its row of the audit trail."""
        return trail_link(work.pk)

    @admin.display
    @when_shown
    def ledger_entry(self, work: Work) -> SafeString | str:
        """Return the way to what was billed for it."""
        return ledger_link(work.pk)

    @admin.display(description="batch")
    def batch_page(self, work: Work) -> SafeString | str:
        """Return the way to its batch."""
        return batch_link(work.batch_id)

    @admin.action(description="Put the chosen work back", permissions=["requeue"])
    def requeue(self, request: HttpRequest, queryset: QuerySet[Work]) -> HttpResponse | None:
        """Ask, and let engines take it anew."""
        if not self.is_confirmed(request):
            return self.ask(request, queryset, _REQUEUE)
        return self.carry_out(request, queryset, lambda work: requeue(str(work.pk)), "Put back")

    @button("Put back into the queue", permissions=["requeue"], icon="replay")
    def requeue_this(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask about the one whose page it is."""
        return self.ask_about(request, object_id, _REQUEUE)

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Find out why those of the page do not begin that wait."""
        response = super().changelist_view(request, extra_context)
        tell_waits(response, for_work)
        return response

    def has_requeue_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may change work."""
        return request.user.has_perm("jobs.change_work")
