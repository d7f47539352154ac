"""The admin site: its own tables, and the way to each page."""

from __future__ import annotations

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission
from django.test import Client, RequestFactory
from django.urls import reverse

from gateway.admin.site import NAVIGATION, OperatorSite, navigation
from gateway.admin.theme import ModelAdmin
from gateway.models import Team
from inference.models import Model
from jobs.models import RequestRecord
from tests.unit.gateway.admin.operators import sign_in
from tests.unit.gateway.admin.rows import NOON, new_id

pytestmark = pytest.mark.django_db


def test_the_site_has_nothing_that_others_registered() -> None:
    assert isinstance(admin.site, OperatorSite)
    strange = [each for each in admin.site._registry.values() if not isinstance(each, ModelAdmin)]
    assert strange == []
    apps_shown = {model._meta.app_label for model in admin.site._registry}
    assert apps_shown == {"admin", "auth", "axes", "gateway", "inference", "jobs"}


def test_every_table_is_in_the_navigation_once() -> None:
    names = [entry.name for entries in NAVIGATION.values() for entry in entries]
    assert len(names) == len(set(names))
    tables = {
        f"{model._meta.app_label}_{model._meta.model_name}_changelist"
        for model in admin.site._registry
    }
    assert tables <= set(names)
    for name in names:
        assert reverse(f"admin:{name}")


def test_every_entry_takes_a_permission_that_exists() -> None:
    found = Permission.objects.select_related("content_type")
    existing = {f"{each.content_type.app_label}.{each.codename}" for each in found}
    asked = {entry.permission for entries in NAVIGATION.values() for entry in entries}
    assert asked - {""} <= existing


def test_an_operator_is_shown_the_way_to_what_the_role_may_see(client: Client) -> None:
    def titles(role: str) -> set[str]:
        request = RequestFactory().get("/admin/")
        request.user = sign_in(client, role, name=role or "nobody")
        groups = navigation(request)
        return {item["title"] for group in groups for item in group["items"]}

    nobody, viewer, owner = titles(""), titles("viewer"), titles("owner")
    assert nobody == set()
    assert {"Requests", "Ledger", "Engines", "Dashboard"} <= viewer
    assert owner - viewer == {
        *("Accounts", "Roles", "Changes", "Sign-ins", "Failed sign-ins"),
        *("Playground", "New batch"),
    }


def test_the_search_finds_a_request_by_its_id(admin_client: Client) -> None:
    record = RequestRecord.objects.create(id=new_id(), created_at=NOON, team_id=7, model="tiny")
    page = admin_client.get(f"/admin/search/?s=msg_{record.pk}&extended=1").content.decode()
    assert f"/admin/jobs/requestrecord/{record.pk}/change/" in page


def test_the_search_leads_to_the_row_whatever_its_id_has_in_it(admin_client: Client) -> None:
    """Django reads `_3B` in the address of a row as a semicolon."""
    Model.objects.create(id="vendor/llama_3B", context_tokens=1)
    page = admin_client.get("/admin/search/?s=llama&extended=1").content.decode()
    assert "/admin/inference/model/vendor_2Fllama_5F3B/change/" in page


def test_the_search_shows_the_first_of_many_rows(admin_client: Client) -> None:
    Team.objects.bulk_create(Team(name=f"team {number}") for number in range(30))
    page = admin_client.get("/admin/search/?s=team&extended=1").content.decode()
    assert page.count('href="/admin/gateway/team/') == 1 + 20


def test_the_search_shows_nobody_what_the_role_may_not_see(client: Client) -> None:
    sign_in(client, "viewer", name="secretive")
    Team.objects.create(name="secretive team")
    page = client.get("/admin/search/?s=secretive&extended=1").content.decode()
    assert "secretive team" in page
    assert "/admin/auth/user/" not in page


@pytest.mark.parametrize("page", ["abc", "0", "-1", "99"])
def test_the_search_has_no_pages_beyond_its_last(admin_client: Client, page: str) -> None:
    assert admin_client.get(f"/admin/search/?s=team&extended=1&page={page}").status_code == 404
