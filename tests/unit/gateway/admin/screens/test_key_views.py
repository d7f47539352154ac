"""How a page gets its key, and gives it back."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from gateway.keys import digest, load_principals
from gateway.models import ApiKey, Team
from inference.models import Model
from tests.unit.gateway.admin.screens.rows import operator

pytestmark = pytest.mark.django_db

OPEN, CLOSE = "/admin/session-keys/open/", "/admin/session-keys/close/"


@pytest.fixture
def team() -> Team:
    return Team.objects.create(name="blue")


def ask(client: Client, team: Team, fields: dict[str, str] | None = None) -> Any:
    return client.post(OPEN, {"team": team.pk, "purpose": "PLAYGROUND"} | (fields or {}))


def test_a_page_gets_a_key_of_the_team_that_works(admin_client: Client, team: Team) -> None:
    response = ask(admin_client, team)
    said = response.json()
    principal = load_principals()[digest(said["key"])]
    assert (principal.team_name, said["team"]) == ("blue", "blue")
    assert said["key"].startswith(said["prefix"])
    assert ApiKey.objects.get().owner == "admin"
    assert "no-store" in response.headers["cache-control"]


def test_a_page_gives_its_key_back(admin_client: Client, team: Team) -> None:
    said = ask(admin_client, team).json()
    assert admin_client.post(CLOSE, {"id": said["id"]}).json() == {"revoked": True}
    assert not load_principals()


def test_a_page_gives_back_no_key_of_another_operator(admin_client: Client, team: Team) -> None:
    said = ask(admin_client, team).json()
    other = operator("add_apikey")
    assert other.post(CLOSE, {"id": said["id"]}).json() == {"revoked": False}
    assert load_principals()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"team": "x"}, "team: there is no such team"),
        ({"team": "9" * 30}, "team: there is no such team"),
        ({"team": "٣"}, "team: there is no such team"),
        ({"purpose": "ADMIN"}, "purpose: must be one of PLAYGROUND, BATCH_UPLOAD"),
    ],
)
def test_what_is_wrong_is_said(
    admin_client: Client, team: Team, fields: dict[str, str], message: str
) -> None:
    response = ask(admin_client, team, fields)
    assert response.status_code == 400
    assert response.json() == {"error": message}
    assert not ApiKey.objects.exists()


def test_who_paid_last_is_chosen_the_next_time_in_this_session_alone(
    admin_client: Client, team: Team
) -> None:
    Model.objects.create(id="tiny", context_tokens=1)
    Team.objects.create(name="aaa")
    chosen = f'<option value="{team.pk}" selected>'
    pages = ("/admin/playground/", "/admin/batches/new/")
    for page in pages:
        shown = admin_client.get(page).content.decode()
        assert '<option value="">Choose a team</option>' in shown
        assert " selected>" not in shown
    ask(admin_client, team)
    for page in pages:
        assert chosen in admin_client.get(page).content.decode()
    assert chosen not in operator("add_apikey").get(pages[0]).content.decode()


def test_the_only_team_needs_no_choice(admin_client: Client, team: Team) -> None:
    assert "Choose a team" not in admin_client.get("/admin/batches/new/").content.decode()


def test_an_id_that_is_none_is_refused(admin_client: Client) -> None:
    assert admin_client.post(CLOSE, {"id": "x"}).status_code == 400


def test_keys_are_for_who_may_make_them(client: Client, team: Team) -> None:
    assert ask(operator("view_apikey"), team).status_code == 403
    assert ask(client, team).status_code == 302
    assert not ApiKey.objects.exists()


def test_nothing_is_made_by_a_link_or_a_forged_post(team: Team) -> None:
    client = operator("add_apikey")
    assert client.get(OPEN).status_code == 405
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = client.cookies
    assert ask(strict, team).status_code == 403
    assert not ApiKey.objects.exists()


def test_keys_are_among_the_changes(admin_client: Client, team: Team) -> None:
    said = ask(admin_client, team).json()
    admin_client.post(CLOSE, {"id": said["id"]})
    changes = LogEntry.objects.filter(object_id=said["id"]).order_by("pk")
    assert [change.change_message for change in changes] == [
        "Made for a playground session of blue.",
        "Revoked, its page being left.",
    ]
