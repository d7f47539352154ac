"""The admin's pages, each with one address that shows it in use."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.contrib import admin
from django.db.models import Model
from django.urls import reverse

from tests.browser.traffic import Traffic


@dataclass(frozen=True)
class Place:
    """A page, by what its pictures are called, and its address among what traffic left.

    One that is filled in by a script `shows` this once it is. One that is reached by a form only
    is behind the button `press`.
    """

    name: str
    path: Callable[[Traffic], str]
    shows: str = ""
    press: str = ""


def _page(name: str, view: str, shows: str = "") -> Place:
    return Place(name, lambda traffic: reverse(f"admin:{view}"), shows)


def _of(name: str, view: str, field: str, shows: str = "", press: str = "") -> Place:
    def path(traffic: Traffic) -> str:
        return reverse(f"admin:{view}", args=[getattr(traffic, field)])

    return Place(name, path, shows, press)


def _list(model: type[Model]) -> Place:
    table: Any = model._meta
    name = re.sub(r"\W+", "-", str(table.verbose_name_plural).lower())
    return _page(name, f"{table.app_label}_{table.model_name}_changelist")


_TEST = "Test connection"
LISTS = [_list(model) for model in admin.site._registry]
PLACES = [
    _page("dashboard", "index", "Live"),
    _page("engines", "engines"),
    _page("find", "find_request"),
    _of("request", "request_page", "answered_id"),
    _of("failed-request", "request_page", "failed_id"),
    _of("fallback-request", "request_page", "fallback_id", "Asked for"),
    _page("playground", "playground"),
    _page("new-batch", "new_batch"),
    _of("batch", "batch_page", "batch_id"),
    _of("cancel-batch", "cancel_batch", "batch_id"),
    _page("first-steps", "first_steps"),
    _page("two-factor", "two_factor"),
    # Whatever is registered has a list.
    *LISTS,
    _page("add-team", "gateway_team_add"),
    _page("add-key", "gateway_apikey_add"),
    _page("add-price", "jobs_price_add"),
    _page("add-model", "inference_model_add"),
    _of("team", "gateway_team_change", "team_id"),
    _of("credit", "gateway_team_credit", "team_id"),
    _of("key", "gateway_apikey_change", "key_id"),
    _of("model", "inference_model_change", "model"),
    _of("upstream", "inference_upstream_change", "upstream"),
    _of("upstream-test", "inference_upstream_change", "upstream", "works", _TEST),
    _of("mcp-server", "inference_mcpserver_change", "mcp_server"),
    _of("mcp-server-test", "inference_mcpserver_change", "mcp_server", "works", _TEST),
    _of("trail-row", "jobs_requestrecord_change", "answered_id"),
    _of("ledger-entry", "jobs_ledgerentry_change", "entry_id"),
    _of("batch-row", "jobs_work_change", "row_id"),
    _of("batch-record", "jobs_batch_change", "batch_id"),
    _of("response", "jobs_storedresponse_change", "response_id"),
    _of("file", "jobs_storedfile_change", "file_id"),
]
