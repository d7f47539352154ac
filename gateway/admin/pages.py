"""The kinds of pages that the admin is made of."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models import Model, OrderBy, QuerySet
from django.http import HttpRequest

from gateway.models import Team
from gateway.nudges import nudge_on_commit
from gateway.request_ids import parse_request_id
from inference.transport.nudge import Topic
from jobs.reports import COUNTED_AT_MOST, capped_count

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Any]
    _Paginator = Paginator[Any]
else:
    ModelAdmin = admin.ModelAdmin
    _Paginator = Paginator

_TEAMS_LISTED = 200
# As many as every number of that length fits the database's widest integer.
_ID_DIGITS = 18


class NudgingAdmin(ModelAdmin):
    """Tells the gateways of every change, so that they act on it at once."""

    topic: ClassVar[Topic]

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Let nobody ask for what a secret begins with, or for what no text can hold."""
        is_secret = lookup.startswith(("digest", "keys__digest"))
        return (
            not is_secret and "\0" not in value and super().lookup_allowed(lookup, value, request)
        )

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


class RecordAdmin(ModelAdmin):
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
        if self.team_order and TeamFilter.parameter_name in request.GET:
            return self.team_order
        return super().get_ordering(request)

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Take what the filters offer: any other look-up may read every row."""
        offered = {getattr(each, "parameter_name", each) for each in self.list_filter}
        return lookup.removesuffix("__exact") in offered and "\0" not in value

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


class OpenFilter(admin.SimpleListFilter):
    """Takes any value in the address, be it listed or not."""

    def has_output(self) -> bool:
        """Filter even if nothing is listed."""
        return True


class TeamFilter(OpenFilter):
    """By team's id; only the first teams by name are listed."""

    title = "team"
    parameter_name = "team"
    field: ClassVar[str]

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """List teams."""
        teams = Team.objects.values_list("id", "name")[:_TEAMS_LISTED]
        return [(str(team_id), name) for team_id, name in teams]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Keep the rows of the team."""
        value = self.value()
        if value is None:
            return queryset
        known = value.isdecimal() and len(value) <= _ID_DIGITS
        return queryset.filter(**{self.field: int(value)}) if known else queryset.none()
