"""The playground's page; what its scripts do is tested with them."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

import pytest
from django.test import Client

from gateway.admin.screens import playground
from gateway.admin.waiting import Look
from gateway.models import Team
from inference.models import Model
from tests.unit.gateway.admin.screens.rows import operator
from tests.unit.gateway.live.engine_reports import report

pytestmark = pytest.mark.django_db

PAGE = "/admin/playground/"


def data_of(page: str, name: str) -> Any:
    """Return what a JSON script tag of the page holds."""
    found = re.search(rf'<script id="{name}" type="application/json">(.*?)</script>', page, re.S)
    assert found
    return json.loads(found[1])


def test_it_offers_teams_and_enabled_models(admin_client: Client) -> None:
    Team.objects.create(name="blue")
    Model.objects.create(id="tiny", context_tokens=100, reasoning="optional")
    Model.objects.create(id="off", context_tokens=100, enabled=False)
    page = admin_client.get(PAGE, {"model": "tiny"}).content.decode()
    assert "blue</option>" in page
    assert '<option value="tiny" selected>' in page
    (model,) = data_of(page, "models")
    assert (model["id"], model["can_think"]) == ("tiny", True)
    options = data_of(page, "options")
    assert options["purpose"] == "PLAYGROUND"
    assert options["request_url"] == "/admin/requests/ID/"
    assert "playground.js" in page


def test_it_prefers_a_model_that_is_served(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    Team.objects.create(name="blue")
    for name in ("archive", "tiny"):
        Model.objects.create(id=name, context_tokens=100)
    served = Look([report(model="tiny")], frozenset())
    monkeypatch.setattr(playground, "look", lambda: served)
    page = admin_client.get(PAGE).content.decode()
    assert '<option value="archive" >archive (no engine)</option>' in page
    assert '<option value="tiny" selected>tiny</option>' in page
    page = admin_client.get(PAGE, {"model": "archive"}).content.decode()
    assert '<option value="archive" selected>' in page


def test_a_model_s_name_cannot_leave_its_script_tag(admin_client: Client) -> None:
    Team.objects.create(name="blue")
    Model.objects.create(id="tiny", display_name="</script><script>x()", context_tokens=1)
    page = admin_client.get(PAGE).content.decode()
    assert "<script>x()" not in page
    assert data_of(page, "models")[0]["name"] == "</script><script>x()"


def test_without_a_team_or_a_model_it_leads_to_the_first_steps(admin_client: Client) -> None:
    page = unescape(admin_client.get(PAGE).content.decode())
    assert "/admin/start/" in page
    assert "playground.js" not in page


def test_it_takes_the_permission_to_make_keys() -> None:
    assert operator("view_model").get(PAGE).status_code == 403
    assert operator("add_apikey").get(PAGE).status_code == 200
