"""The ways between a request, its batch, its team and its ledger entry."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.contrib.admin.utils import quote
from django.db.models import Model
from django.urls import reverse
from django.utils.safestring import SafeString

from gateway.admin.theme import link
from jobs.models import Batch, LedgerEntry, RequestRecord, StoredResponse, Work


def change_link(row: Model, text: object = "") -> SafeString:
    """Return the way to a row's own page."""
    return link(page_address(type(row), "change", row.pk), text or row.pk)


def list_link(model: type[Model], text: object, **narrowed_by: object) -> SafeString:
    """Return the way to a table's list, narrowed by these filters."""
    return link(f"{page_address(model, 'changelist')}?{urlencode(narrowed_by)}", text)


def story_link(record: RequestRecord) -> SafeString:
    """Return the way to the page that tells what became of a request, and why."""
    return link(reverse("admin:request_page", args=[record.pk]), record.pk)


def live_link(batch: Batch) -> SafeString:
    """Return the way to the page on which a batch is watched, and cancelled."""
    return link(reverse("admin:batch_page", args=[batch.pk]), batch.pk)


def team_link(team_id: int, name: str = "") -> SafeString:
    """Return the way to a team's page."""
    return link(reverse("admin:gateway_team_change", args=[team_id]), name or f"team {team_id}")


def key_link(key_id: UUID | None, name: str = "") -> SafeString | str:
    """Return the way to a key's page."""
    if key_id is None:
        return "-"
    return link(reverse("admin:gateway_apikey_change", args=[key_id]), name or key_id)


def trail_link(request_id: UUID) -> SafeString | str:
    """Return the way to a request's row of the audit trail.

    There is none yet of what has not ended, and none ever of rows that were never run because they
    were cancelled or had expired.
    """
    if not RequestRecord.objects.filter(pk=request_id).exists():
        return "not in the audit trail"
    return link(page_address(RequestRecord, "change", request_id), "in the audit trail")


def ledger_link(request_id: UUID) -> SafeString | str:
    """Return the way to a request's ledger entry."""
    entry = LedgerEntry.objects.filter(request_id=request_id).only("number").first()
    return change_link(entry, f"entry {entry.number}") if entry else "not billed"


def batch_link(batch_id: UUID | None) -> SafeString | str:
    """Return the way to a batch; its name is its id."""
    return "-" if batch_id is None else link(page_address(Batch, "change", batch_id), batch_id)


def kept_links(request_id: UUID) -> dict[str, SafeString]:
    """Return the ways to what else is kept of a request: its row of work, its stored response."""
    kept: dict[str, type[Model]] = {"work": Work, "response": StoredResponse}
    return {
        name: link(page_address(model, "change", request_id), name)
        for name, model in kept.items()
        if model._default_manager.filter(pk=request_id).exists()
    }


def page_address(model: type[Model], page: str, *arguments: Any) -> str:
    """Return the address of one of a table's pages: `changelist`, `change` and the like."""
    opts = model._meta
    name = f"admin:{opts.app_label}_{opts.model_name}_{page}"
    return reverse(name, args=[quote(argument) for argument in arguments])
