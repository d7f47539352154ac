"""The ledger's entries, to be read."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib import admin
from django.utils.safestring import SafeString

from gateway.admin.filters import TeamFilter, TimeFilter
from gateway.admin.links import change_link, trail_link
from gateway.admin.money import units
from gateway.admin.pages import RecordAdmin, RequestSearch, TeamColumn
from gateway.admin.theme import ChoiceFilter, when_shown
from jobs.models import LedgerEntry
from jobs.reports import entry_ids_between


class EntryTeamFilter(TeamFilter):
    """By the account's team."""

    field = "account_id"


def _ids(since: datetime | None, until: datetime | None) -> dict[str, Any]:
    first, last = entry_ids_between(since, until)
    return {"pk__gte": first, "pk__lt": last}


class BookedFilter(TimeFilter):
    """By when they were made, which is the order of their ids."""

    bounds = _ids


@admin.register(LedgerEntry)
class LedgerEntryAdmin(TeamColumn, RequestSearch, RecordAdmin):
    """Every movement of money, newest first."""

    request_field = "request_id"
    team_field = "account_id"
    team_order = ("-number",)
    list_display = [
        *("created_at", "team", "number", "kind", "amount", "balance_after"),
        *("model", "request_id", "description"),
    ]
    list_display_links = ["created_at", "number"]
    list_filter = [("kind", ChoiceFilter), BookedFilter, EntryTeamFilter]
    fields = [
        *("team", "number", "kind", "amount", "balance_after", "created_at"),
        *("description", "actor", "reference"),
        *("request_record", "model", "lane", "price_version"),
        *("input_tokens", "cached_tokens", "cache_written_tokens", "output_tokens"),
    ]
    export_columns = (
        *("id", "created_at", "account_id", "number", "kind", "amount_micros"),
        *("balance_after_micros", "request_id", "model", "lane", "price_id", "input_tokens"),
        *("cached_tokens", "cache_written_tokens", "output_tokens", "description", "actor"),
        "reference",
    )

    @admin.display(description="amount, in units")
    def amount(self, entry: LedgerEntry) -> str:
        """Return units."""
        return units(entry.amount_micros)

    @admin.display(description="balance after, in units")
    def balance_after(self, entry: LedgerEntry) -> str:
        """Return units."""
        return units(entry.balance_after_micros)

    @admin.display(description="request")
    @when_shown
    def request_record(self, entry: LedgerEntry) -> SafeString | str:
        """Return the way to the request that it is for."""
        return trail_link(entry.request_id) if entry.request_id else "-"

    @admin.display(description="price")
    def price_version(self, entry: LedgerEntry) -> SafeString | str:
        """Return the way to the version that it was computed by."""
        return change_link(entry.price, entry.price) if entry.price else "-"
