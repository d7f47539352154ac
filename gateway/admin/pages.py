"""The kinds of pages that the admin is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from django.contrib import admin, messages
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.utils import unquote
from django.core.paginator import Paginator
from django.db.models import Model, OrderBy, OuterRef, QuerySet, Subquery
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.utils.safestring import SafeString

from gateway.admin.export import csv_answer
from gateway.admin.filters import KeyFilter, TeamFilter
from gateway.admin.links import page_address, team_link
from gateway.admin.screens.view import show
from gateway.admin.theme import ModelAdmin, button
from gateway.models import Team
from gateway.nudges import nudge_on_commit
from gateway.request_ids import parse_request_id
from inference.transport.nudge import Topic
from jobs.reports import COUNTED_AT_MOST, capped_count

if TYPE_CHECKING:
    _Paginator = Paginator[Any]
else:
    _Paginator = Paginator

# What an operator is shown of what is about to be changed.
_NAMED_AT_MOST = 50


class NudgingAdmin(ModelAdmin):
    """Tells the gateways of every change, so that they act on it at once."""

    topic: ClassVar[Topic]

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Let nobody ask for what a secret begins with."""
        is_secret = lookup.startswith(("digest", "keys__digest"))
        return not is_secret and super().lookup_allowed(lookup, value, request)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Save and tell."""
        super().save_model(request, obj, form, change)
        nudge_on_commit(self.topic)

    def delete_model(self, request: HttpRequest, obj: Model) -> None:
        """Delete one and tell."""
        super().delete_model(request, obj)
        nudge_on_commit(self.topic)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Delete several and tell."""
        super().delete_queryset(request, queryset)
        nudge_on_commit(self.topic)


class BoundedPaginator(_Paginator):
    """Pages through the newest rows only, and so never counts all that there are."""

    @cached_property
    def count(self) -> int:
        """Rows that can be paged through."""
        return min(capped_count(self.object_list), COUNTED_AT_MOST)  # type: ignore[arg-type]


class ExportingAdmin(ModelAdmin):
    """Offers its list, as it is narrowed, as a CSV file. Amounts in it are micro-units."""

    actions_list: Sequence[str] = ("export",)
    export_columns: ClassVar[Sequence[str]]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Let the button export what is shown."""
        response = super().changelist_view(request, extra_context)
        shown = getattr(response, "context_data", None) or {}
        for each in shown.get("actions_list", ()):
            each["path"] += f"?{request.GET.urlencode()}"
        return response

    @button("Export as CSV", permissions=["view"], icon="download")
    def export(self, request: HttpRequest) -> HttpResponseBase:
        """Answer with every row of the list, and not those of one page alone."""
        try:
            rows = self.get_changelist_instance(request).queryset
        except IncorrectLookupParameters:
            return redirect(page_address(self.model, "changelist"))
        name = str(self.opts.verbose_name_plural).replace(" ", "-")
        ordered = rows.order_by(*self.get_export_order(request))
        return csv_answer(request, ordered, self.export_columns, name)

    def get_export_order(self, request: HttpRequest) -> Any:
        """Return columns of which none is ever null, and the last unique among what is listed."""
        return ("pk",)


class RecordAdmin(ExportingAdmin):
    """Rows without end that nobody adds, changes or deletes by hand, superusers included.

    Lists follow an index and stop: nothing is sorted by another column, nothing is counted in
    whole.
    """

    paginator = BoundedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    sortable_by = ()
    list_per_page = 50
    # The order of the rows of one team, where only the indexes that begin with the team have it.
    team_order: ClassVar[tuple[str | OrderBy, ...]] = ()

    def get_ordering(self, request: HttpRequest) -> Any:
        """Walk a team's own index where the list is one team's."""
        of_one_team = {TeamFilter.parameter_name, KeyFilter.parameter_name} & {
            name for name, value in request.GET.items() if value
        }
        if self.team_order and of_one_team:
            return self.team_order
        return super().get_ordering(request)

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Offer the way to all of them only where the list is narrowed."""
        response = super().changelist_view(request, extra_context)
        shown = (getattr(response, "context_data", None) or {}).get("cl")
        if shown is not None and not (shown.query or shown.has_active_filters):
            shown.full_result_count = shown.result_count
        return response

    def get_export_order(self, request: HttpRequest) -> Any:
        """Export in the order of the list, which follows an index."""
        return self.get_ordering(request) or self.opts.ordering

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Take what the filters offer: any other look-up may read every row."""
        return lookup.removesuffix("__exact") in self._offered()

    def _offered(self) -> set[str]:
        names: set[str] = set()
        for each in self.list_filter:
            if isinstance(each, tuple):
                names |= {str(each[0]), f"{each[0]}__id"}
            else:
                names |= set(getattr(each, "parameters", [getattr(each, "parameter_name", each)]))
        return names

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody adds."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody changes."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody deletes."""
        return False


class RequestSearch(ModelAdmin):
    """A search box that takes the id of a request, and nothing that would read every row."""

    search_fields = ("pk",)
    search_help_text = "The id of a request, such as msg_… or req_… ."
    request_field: ClassVar[str]

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Find the one request."""
        if not search_term.strip():
            return queryset, False
        request_id = parse_request_id(search_term)
        if request_id is None:
            return queryset.none(), False
        return queryset.filter(**{self.request_field: request_id}), False


class TeamColumn(ModelAdmin):
    """Shows whose a row is, where the row itself has nothing but the team's id."""

    team_field: ClassVar[str] = "team_id"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Read each team's name with it."""
        names = Team.objects.filter(pk=OuterRef(self.team_field)).values("name")
        rows: QuerySet[Any] = super().get_queryset(request)
        named: QuerySet[Any] = rows.annotate(team_name=Subquery(names))
        return named

    @admin.display
    def team(self, row: Any) -> SafeString | str:
        """Return the way to the team; only its id, if it is gone."""
        team_id = getattr(row, self.team_field)
        return team_link(team_id, row.team_name) if row.team_name else f"team {team_id}"


class Question(NamedTuple):
    """What an operator is asked before anything happens. `action` is the list action's name.

    `of_one` is the title where one row was chosen, with `{row}` in it: nobody says yes to the wrong
    one.
    """

    action: str
    title: str
    of_one: str
    text: str
    yes: str
    no: str = "Leave as it is"


class AskingAdmin(ModelAdmin):
    """Has actions that ask before they do anything, for what is chosen in the list or for one."""

    def ask(
        self,
        request: HttpRequest,
        queryset: QuerySet[Any],
        question: Question,
        *,
        one: bool = False,
    ) -> TemplateResponse:
        """Return the page that asks; its answer comes to the list's action, `is_confirmed` then.

        `one`: the question was asked on the page of the only one, and its answer leads back there.
        """
        chosen = list(queryset[: _NAMED_AT_MOST + 1])
        listed = page_address(self.model, "changelist")
        only = chosen[0] if len(chosen) == 1 else None
        return show(
            request,
            "admin/confirm.html",
            question.of_one.format(row=only) if only else question.title,
            question=question,
            original=only,
            chosen=chosen[:_NAMED_AT_MOST],
            more=len(chosen) > _NAMED_AT_MOST,
            ids=[str(pk) for pk in queryset.values_list("pk", flat=True)],
            answered_at=listed,
            back=page_address(self.model, "change", chosen[0].pk) if one and chosen else listed,
            one=one,
            opts=self.opts,
        )

    def ask_about(
        self, request: HttpRequest, object_id: str, question: Question
    ) -> TemplateResponse:
        """Return the page that asks about the one row whose page it was."""
        found = row_of(self, request, object_id)
        return self.ask(request, self.get_queryset(request).filter(pk=found.pk), question, one=True)

    def is_confirmed(self, request: HttpRequest) -> bool:
        """Whether the operator has said yes."""
        return request.method == "POST" and request.POST.get("confirmed") == "yes"

    def carry_out(
        self,
        request: HttpRequest,
        queryset: QuerySet[Any],
        do: Callable[[Any], bool],
        done: str,
    ) -> HttpResponse | None:
        """Do something to each of what is chosen, say to how many, and lead back to the question.

        `do` returns whether it was done; `done` says what it is then, such as "Cancelled", in the
        message, which names the only one, and in the history of each.
        """
        back = self._way_back(request, queryset)
        chosen, changed = len(queryset), []
        for each in queryset:
            if do(each):
                changed.append(each)
                self.log_change(request, each, f"{done}.")
        what = str(changed[0]) if changed and chosen == 1 else f"{len(changed)} of {chosen}"
        level = messages.SUCCESS if changed else messages.WARNING
        self.message_user(request, f"{done}: {what}.", level)
        return back

    def _way_back(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        """Return the way to the page of the only one, if that is where it was asked."""
        if request.POST.get("one") != "yes":
            return None
        only = queryset.values_list("pk", flat=True).first()
        return redirect(page_address(self.model, "change", only)) if only is not None else None


def row_of(site: ModelAdmin, request: HttpRequest, object_id: str) -> Any:
    """Return the row whose page a button was on; 404 if there is none."""
    found = site.get_object(request, unquote(object_id))
    if found is None:
        raise Http404(f"there is no {site.opts.verbose_name} {object_id}")
    return found
