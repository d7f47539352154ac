"""Keys in the admin."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from html import unescape

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.sessions.models import Session
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from gateway.keys import digest, find_key, load_principals, mint, revoke
from gateway.models import ApiKey, Team
from inference.models import Model
from jobs.models import KeyUse

pytestmark = pytest.mark.django_db

KEYS = "/admin/gateway/apikey/"
TEAMS = "/admin/gateway/team/"
TEXT = re.compile(r"sk-tandem-[A-Za-z0-9_-]{43}")


def add_key(client: Client, name: str) -> str:
    """Make a key through the form, and return the page that comes then."""
    team, _ = Team.objects.get_or_create(name="blue")
    data = {"name": name, "team": team.pk, "scopes": ["inference"]}
    response = client.post(f"{KEYS}add/", data, follow=True)
    assert response.redirect_chain
    return response.content.decode()


def test_a_new_key_is_shown_once_and_works(admin_client: Client) -> None:
    page = add_key(admin_client, "laptop")
    (plaintext,) = set(TEXT.findall(page))
    assert load_principals()[digest(plaintext)].key_name == "laptop"
    assert not TEXT.search(admin_client.get(KEYS).content.decode())


def test_a_new_key_is_copied_by_a_button(admin_client: Client) -> None:
    page = add_key(admin_client, "laptop")
    copied = re.search(r'data-copies="([^"]+)"', page)
    assert copied is not None
    assert re.search(rf'<code id="{copied[1]}">{TEXT.pattern}</code>', page)
    assert '<script src="/static/gateway/copy.js" type="module"></script>' in page


@pytest.mark.parametrize("narrowed", ["team={}", "_changelist_filters=team__id__exact%3D{}"])
def test_a_new_key_is_for_the_team_that_the_operator_came_from(
    admin_client: Client, narrowed: str
) -> None:
    team = Team.objects.create(name="blue")
    page = admin_client.get(f"{KEYS}add/?{narrowed.format(team.pk)}").content.decode()
    assert f'<option value="{team.pk}" selected>blue</option>' in page


@pytest.mark.parametrize("team", ["", "x", "999999"])
def test_a_team_that_is_none_is_not_filled_in(admin_client: Client, team: str) -> None:
    page = admin_client.get(f"{KEYS}add/?team={team}")
    assert page.status_code == 200
    assert " selected>" not in page.content.decode()


def test_the_list_of_a_team_s_keys_leads_to_a_new_key_of_it(admin_client: Client) -> None:
    team = Team.objects.create(name="blue")
    page = admin_client.get(f"{KEYS}?team__id__exact={team.pk}").content.decode()
    assert f"{KEYS}add/?_changelist_filters=team__id__exact%3D{team.pk}" in page


def test_a_new_key_never_reaches_the_sessions_table(admin_client: Client) -> None:
    team = Team.objects.create(name="blue")
    data = {"name": "laptop", "team": team.pk, "scopes": ["inference"]}
    admin_client.post(f"{KEYS}add/", data)
    assert not any(TEXT.search(str(row.get_decoded())) for row in Session.objects.all())


def test_a_key_that_exists_is_shown_without_its_hash(admin_client: Client) -> None:
    mint("laptop")
    key = find_key("laptop")
    page = admin_client.get(f"{KEYS}{key.pk}/change/").content.decode()
    assert key.prefix in page
    assert bytes(key.digest).hex() not in page


def test_a_key_keeps_its_name_team_and_secret_but_its_limits_change(admin_client: Client) -> None:
    mint("laptop")
    Model.objects.create(id="tiny", context_tokens=1)
    key = find_key("laptop")
    admin_client.post(
        f"{KEYS}{key.pk}/change/",
        {
            "name": "other",
            "team": Team.objects.create(name="red").pk,
            "owner": "ann",
            "scopes": ["read", "inference"],
            "allowed_models": ["tiny"],
            "requests_per_minute": 60,
        },
    )
    changed = find_key("laptop")
    assert (changed.team, changed.prefix) == (key.team, key.prefix)
    assert bytes(changed.digest) == bytes(key.digest)
    assert (changed.owner, changed.requests_per_minute) == ("ann", 60)
    assert (changed.allowed_models, set(changed.scopes)) == (["tiny"], {"read", "inference"})


def test_a_model_that_left_the_catalogue_stays_allowed_until_it_is_unchosen(
    admin_client: Client,
) -> None:
    mint("laptop")
    ApiKey.objects.update(allowed_models=["gone"])
    page = admin_client.get(f"{KEYS}{find_key('laptop').pk}/change/").content.decode()
    assert re.search(r'<input[^>]+name="allowed_models"[^>]+value="gone"[^>]+checked', page)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("scopes", [], "This field is required."),
        ("scopes", ["root"], "root is not one of the available choices"),
        ("allowed_models", ["unknown"], "unknown is not one of the available choices"),
        ("expires_at_0", "2020-01-01", "Must lie in the future."),
    ],
)
def test_a_key_that_would_not_work_is_refused(
    admin_client: Client, field: str, value: object, message: str
) -> None:
    team = Team.objects.create(name="blue")
    data = {"name": "laptop", "team": team.pk, "scopes": ["inference"], "expires_at_1": "00:00"}
    if not field.startswith("expires"):
        del data["expires_at_1"]
    page = admin_client.post(f"{KEYS}add/", data | {field: value})
    assert message in unescape(page.content.decode())
    assert not ApiKey.objects.exists()


def test_the_list_says_when_each_key_was_last_used_in_a_fixed_number_of_queries(
    admin_client: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(5):
        mint(f"key {number}")
    key = find_key("key 3")
    KeyUse.objects.create(key_id=key.pk, last_used_at=datetime(2026, 8, 7, 12, tzinfo=UTC))
    with django_assert_max_num_queries(8):
        page = admin_client.get(KEYS).content.decode()
    assert page.count("2026-08-07 12:00:00") == 1


def test_a_key_cannot_be_deleted_and_so_neither_can_its_team(admin_client: Client) -> None:
    mint("laptop")
    key = find_key("laptop")
    assert admin_client.post(f"{KEYS}{key.pk}/delete/", {"post": "yes"}).status_code == 403
    admin_client.post(f"{TEAMS}{key.team_id}/delete/", {"post": "yes"})
    assert ApiKey.objects.count() == Team.objects.count() == 1


def test_revoking_asks_first(admin_client: Client) -> None:
    mint("laptop")
    mint("other")
    key = find_key("laptop")
    chosen = {"action": "revoke_selected", "_selected_action": [str(key.pk)]}
    page = admin_client.post(KEYS, chosen).content.decode()
    assert "This cannot be undone" in page
    assert f"<h2>Revoke the API key laptop of {key.team}?</h2>" in page
    assert f'href="{KEYS}{key.pk}/change/"' in page
    assert key.prefix in page
    assert len(load_principals()) == 2
    page = admin_client.post(KEYS, chosen | {"confirmed": "yes"}, follow=True).content.decode()
    assert "Revoked: laptop (" in page
    assert [principal.key_name for principal in load_principals().values()] == ["other"]


def test_revoking_says_when_nothing_is_left_to_revoke(admin_client: Client) -> None:
    mint("laptop")
    revoke(ApiKey.objects.all())
    chosen = {"action": "revoke_selected", "_selected_action": [str(find_key("laptop").pk)]}
    assert "nothing to do" in admin_client.post(KEYS, chosen).content.decode()


def test_a_key_is_revoked_from_its_own_page_and_the_way_leads_back_there(
    admin_client: Client,
) -> None:
    mint("laptop")
    key = find_key("laptop")
    own = f"{KEYS}{key.pk}/change/"
    ask = f"{KEYS}{key.pk}/revoke_this/"
    assert ask in admin_client.get(own).content.decode()
    page = admin_client.get(ask).content.decode()
    assert "This cannot be undone" in page
    assert load_principals()
    sent = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page))
    answer = admin_client.post(KEYS, sent)
    assert answer["location"] == own
    assert not load_principals()
    change = LogEntry.objects.get()
    assert (change.object_id, change.get_change_message()) == (str(key.pk), "Revoked.")


@pytest.mark.parametrize("name", ["nonsense", "7a0f2b1e-5a75-4a3c-9c39-0a1b2c3d4e5f"])
def test_nothing_is_asked_about_a_key_that_does_not_exist(admin_client: Client, name: str) -> None:
    assert admin_client.get(f"{KEYS}{name}/revoke_this/").status_code == 404


@pytest.mark.parametrize("query", ["digest__startswith=x", "name=%00"])
def test_nobody_can_ask_for_what_a_secret_begins_with(admin_client: Client, query: str) -> None:
    assert admin_client.get(f"/admin/gateway/apikey/?{query}").status_code == 400
    assert admin_client.get(f"/admin/gateway/team/?keys__{query}").status_code == 400
