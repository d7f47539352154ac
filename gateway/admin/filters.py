"""What lists are narrowed by. Each filter leads along an index, or is for lists that are short."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, ClassVar
from uuid import UUID

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from gateway.admin.theme import RANGE_TEMPLATE, DateTimeInput, OptionFilter, TextFilter
from gateway.models import ApiKey, Team
from gateway.request_ids import parse_request_id
from gateway.team_ids import parse_team_id
from inference.models import Model

_TEAMS_LISTED = 200
_UUID7_VERSION = 0x7000 << 64
_EARLIEST, _LATEST = datetime(1970, 1, 2, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)


class OpenFilter(OptionFilter):
    """Takes any value in the address, be it listed or not."""

    def has_output(self) -> bool:
        """Filter even if nothing is listed."""
        return True


class TeamFilter(OpenFilter):
    """By team's id; only the first teams by name are listed."""

    title = "team"
    parameter_name = "team"
    field: ClassVar[str] = "team_id"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """List teams."""
        teams = Team.objects.values_list("id", "name")[:_TEAMS_LISTED]
        return [(str(team_id), name) for team_id, name in teams]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Keep the rows of the team."""
        value = self.value()
        if not value:
            return queryset
        team_id = parse_team_id(value)
        return queryset.none() if team_id is None else queryset.filter(**{self.field: team_id})


class ModelFilter(OpenFilter):
    """By model; those of the catalogue are listed, and others may have been served once."""

    title = "model"
    parameter_name = "model"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """List the catalogue."""
        return [(name, name) for name in Model.objects.values_list("id", flat=True)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Keep what was done by the model."""
        return queryset.filter(model=self.value()) if self.value() else queryset


class IdFilter(TextFilter):
    """By the id of something else, as people copy it."""

    field: ClassVar[str]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Keep what belongs to it."""
        value = self.value()
        if not value:
            return queryset
        found = parse_request_id(value)
        return queryset.filter(**{self.field: found}) if found else queryset.none()


class BatchFilter(IdFilter):
    """The rows or requests of one batch: its page leads here."""

    title = "batch"
    parameter_name = "batch"
    field = "batch_id"


class KeyFilter(IdFilter):
    """What was asked with one key: its page leads here. Indexes of keys begin with the team."""

    title = "API key's id"
    parameter_name = "key"
    field = "key_id"

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Keep what belongs to the key, and so to its team."""
        found = super().queryset(request, queryset)
        key_id = parse_request_id(self.value() or "")
        if found is queryset or key_id is None:
            return found
        teams = ApiKey.objects.filter(pk=key_id).values_list("team_id", flat=True)
        return found.filter(team_id__in=list(teams))


class _TimeForm(forms.Form):
    since = forms.DateTimeField(required=False, widget=DateTimeInput("From, in UTC"))
    until = forms.DateTimeField(required=False, widget=DateTimeInput("To, in UTC"))


class TimeFilter(admin.ListFilter):
    """From one moment on, and before another; both in UTC, each may be left out.

    `field` is the moment's. Where the list is walked along another index, `bounds` returns how far
    that is between two moments, as further conditions.
    """

    title = "time, in UTC"
    template = RANGE_TEMPLATE
    parameters = ("since", "until")
    field: ClassVar[str] = "created_at"
    bounds: ClassVar[Callable[[datetime | None, datetime | None], dict[str, Any]] | None] = None

    def __init__(
        self, request: HttpRequest, params: dict[str, list[str]], model: Any, model_admin: Any
    ) -> None:
        super().__init__(request, params, model, model_admin)
        given = {name: params.pop(name)[-1] for name in self.parameters if name in params}
        self.used_parameters = {name: value for name, value in given.items() if value}
        self._form = _TimeForm(self.used_parameters)

    def has_output(self) -> bool:
        """Be there always."""
        return True

    def expected_parameters(self) -> list[str | None]:
        """Return the names in the address."""
        return list(self.parameters)

    def choices(self, changelist: Any) -> Iterator[Any]:
        """Return the form."""
        yield {"form": self._form}

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Keep what is between; nothing, if that cannot be understood."""
        if not self._form.is_valid():
            return queryset.none()
        since, until = (_clamp(self._form.cleaned_data[name]) for name in self.parameters)
        found = {f"{self.field}__gte": since, f"{self.field}__lt": until}
        conditions = {name: value for name, value in found.items() if value is not None}
        bounds = type(self).bounds
        if conditions and bounds is not None:
            conditions |= bounds(since, until)
        return queryset.filter(**conditions)


def _clamp(moment: datetime | None) -> datetime | None:
    """Return a moment with which can be reckoned; nothing was, or will be, beyond."""
    return moment and min(max(moment, _EARLIEST), _LATEST)


def uuid7_bounds(since: datetime | None, until: datetime | None) -> dict[str, Any]:
    """Return the ids (UUIDv7) that were made between two moments, for lists in the order of ids.

    The clocks that made an id and its moment may differ by a minute.
    """
    conditions: dict[str, Any] = {}
    if since is not None:
        conditions["pk__gte"] = _uuid7_at(since.timestamp() - 60)
    if until is not None:
        conditions["pk__lt"] = _uuid7_at(until.timestamp() + 60)
    return conditions


def _uuid7_at(at_s: float) -> UUID:
    """Return the least id of a moment, in seconds of Unix time."""
    return UUID(int=int(at_s * 1000) << 80 | _UUID7_VERSION)


def moment_text(moment: datetime) -> str:
    """Return a moment as addresses have it, for links to a list between two of them."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M")
