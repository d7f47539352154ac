"""The ledger's entries, to be read."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest

from gateway.admin.money import units
from gateway.admin.pages import RecordAdmin, RequestSearch, TeamFilter
from gateway.models import Team
from jobs.models import LedgerEntry


class EntryTeamFilter(TeamFilter):
    """By the account's team."""

    field = "account_id"


@admin.register(LedgerEntry)
class LedgerEntryAdmin(RequestSearch, RecordAdmin):
    """Every movement of money, newest first."""

    request_field = "request_id"
    team_order = ("-number",)
    list_display = [
        *("created_at", "team", "number", "kind", "amount", "balance_after"),
        *("model", "request_id", "actor", "description"),
    ]
    list_filter = [EntryTeamFilter, "kind"]
    fields = [
        *("team", "number", "kind", "amount", "balance_after", "created_at"),
        *("description", "actor", "reference"),
        *("request_id", "model", "lane", "price"),
        *("input_tokens", "cached_tokens", "cache_written_tokens", "output_tokens"),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[LedgerEntry]:
        """Read each team's name with it."""
        names = Team.objects.filter(pk=OuterRef("account_id")).values("name")
        entries: QuerySet[LedgerEntry] = super().get_queryset(request)
        return entries.annotate(team_name=Subquery(names))

    @admin.display
    def team(self, entry: Any) -> str:
        """Return the team's name, or its id if it is gone."""
        return entry.team_name or f"team {entry.account_id}"

    @admin.display(description="amount, in units")
    def amount(self, entry: LedgerEntry) -> str:
        """Return units."""
        return units(entry.amount_micros)

    @admin.display(description="balance after, in units")
    def balance_after(self, entry: LedgerEntry) -> str:
        """Return units."""
        return units(entry.balance_after_micros)
