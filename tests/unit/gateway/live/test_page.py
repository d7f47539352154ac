"""The page that shows it: where it connects, and that all that it loads is ours."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest
from django.contrib.auth.models import Permission
from django.contrib.staticfiles import finders
from django.test import Client

from gateway.config import BASE_DIR
from gateway.sockets import LIVE_PATH
from tests.unit.gateway.admin.operators import sign_in

SCRIPTS = BASE_DIR / "gateway" / "static" / "gateway"


@pytest.mark.django_db
def test_it_connects_to_the_socket_that_there_is(admin_client: Client) -> None:
    page = admin_client.get("/admin/").content.decode()
    assert f'data-live="{LIVE_PATH}"' in page


@pytest.mark.django_db
def test_it_is_for_every_role_and_nobody_else(client: Client) -> None:
    assert client.get("/admin/").status_code == 302
    sign_in(client, name="nobody")
    assert 'id="board"' not in client.get("/admin/").content.decode()
    for role in ("viewer", "operator", "billing", "owner"):
        sign_in(client, role, name=role)
        assert 'id="board"' in client.get("/admin/").content.decode()


def ways_of(client: Client) -> dict[str, str]:
    """Return where the figures of the page lead, by what they are called."""
    page = client.get("/admin/").content.decode()
    ways = re.findall(r'<dt><a href="([^"]+)">([^<]+)</a></dt>', page)
    return {name: unescape(address) for address, name in ways}


@pytest.mark.django_db
def test_a_figure_leads_to_what_it_counts(admin_client: Client) -> None:
    ways = ways_of(admin_client)
    assert ways["Failed, last hour"].endswith("?status__exact=failed&within=hour")
    assert ways["Waiting"].endswith("/jobs/work/?state__exact=pending")
    assert {admin_client.get(address).status_code for address in ways.values()} == {200}


@pytest.mark.django_db
def test_a_figure_leads_nowhere_for_who_may_not_go_there(client: Client) -> None:
    user = sign_in(client, "viewer")
    user.groups.get().permissions.remove(Permission.objects.get(codename="view_requestrecord"))
    assert {"Waiting", "Engines ready"} == set(ways_of(client))


@pytest.mark.django_db
def test_all_that_it_loads_is_there(admin_client: Client) -> None:
    page = admin_client.get("/admin/").content.decode()
    loaded = re.findall(r'"/static/(gateway/[^"]+)"', page)
    assert "gateway/dashboard/main.js" in loaded
    assert [path for path in loaded if finders.find(path) is None] == []


@pytest.mark.parametrize(
    "script", sorted((SCRIPTS / "dashboard").glob("*.js")), ids=lambda p: p.name
)
def test_a_script_imports_what_is_there(script: Path) -> None:
    imported = re.findall(r'^import .* from "([^"]+)";$', script.read_text(), re.MULTILINE)
    assert [name for name in imported if not (script.parent / name).is_file()] == []


def test_what_is_shown_is_never_read_as_html() -> None:
    scripts = "".join(path.read_text() for path in (SCRIPTS / "dashboard").glob("*.js"))
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", scripts)
