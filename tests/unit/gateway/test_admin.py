"""The admin site."""

from __future__ import annotations

import json
import re
from html import unescape
from unittest.mock import Mock

import pytest
from django.contrib.sessions.models import Session
from django.test import Client
from pytest_django import DjangoCaptureOnCommitCallbacks

from gateway import nudges
from gateway.admin import CatalogueAdmin
from gateway.keys import digest, find_key, load_principals, mint, revoke
from gateway.models import ApiKey, Team
from inference.models import Model
from inference.transport.nudge import Topic

pytestmark = pytest.mark.django_db

KEYS = "/admin/gateway/apikey/"
MODELS = "/admin/inference/model/"
TEAMS = "/admin/gateway/team/"
TEXT = re.compile(r"sk-tandem-[A-Za-z0-9_-]{43}")


def model_form(**changes: object) -> dict[str, object]:
    return {
        "id": "tiny",
        "aliases": "[]",
        "enabled": "on",
        "backend": "vllm",
        "weights": "tiny",
        "context_tokens": 2048,
        "engine_options": "{}",
        "kv_offload_gib": 0,
        "capacity": 32,
        "max_waiting": 256,
        "workers": 1,
        "images_without_vision": "placeholder",
        "reasoning": "none",
        "default_sampling": "{}",
    } | changes


def add_key(client: Client, name: str) -> str:
    """Make a key through the form, and return the page that comes then."""
    team, _ = Team.objects.get_or_create(name="blue")
    data = {"name": name, "team": team.pk}
    response = client.post(f"{KEYS}add/", data, follow=True)
    assert response.redirect_chain
    return response.content.decode()


@pytest.mark.parametrize("path", ["", "gateway/team/", "gateway/apikey/", "inference/model/"])
def test_every_page_wants_a_login(client: Client, path: str) -> None:
    response = client.get(f"/admin/{path}")
    assert response.status_code == 302
    assert response["location"].startswith("/admin/login/")


@pytest.mark.parametrize("path", [KEYS, f"{KEYS}add/", MODELS, f"{MODELS}add/", TEAMS, "/admin/"])
def test_every_page_is_shown_under_the_project_s_name(admin_client: Client, path: str) -> None:
    page = admin_client.get(path)
    assert page.status_code == 200
    assert "Tandem" in page.content.decode()


def test_a_new_key_is_shown_once_and_works(admin_client: Client) -> None:
    page = add_key(admin_client, "laptop")
    (plaintext,) = set(TEXT.findall(page))
    assert load_principals()[digest(plaintext)].key_name == "laptop"
    assert not TEXT.search(admin_client.get(KEYS).content.decode())


def test_a_new_key_never_reaches_the_sessions_table(admin_client: Client) -> None:
    data = {"name": "laptop", "team": Team.objects.create(name="blue").pk}
    admin_client.post(f"{KEYS}add/", data)
    assert not any(TEXT.search(str(row.get_decoded())) for row in Session.objects.all())


def test_a_key_that_exists_is_shown_without_its_hash_and_cannot_be_changed(
    admin_client: Client,
) -> None:
    mint("laptop")
    key = find_key("laptop")
    page = admin_client.get(f"{KEYS}{key.pk}/change/").content.decode()
    assert key.prefix in page
    assert bytes(key.digest).hex() not in page
    assert not re.search(r'<(input|select)[^>]+name="(name|team|prefix|digest|revoked_at)', page)
    before = ApiKey.objects.values().get()
    admin_client.post(f"{KEYS}{key.pk}/change/", {"name": "other", "team": key.team_id})
    assert ApiKey.objects.values().get() == before


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
    assert key.prefix in page
    assert len(load_principals()) == 2
    page = admin_client.post(KEYS, chosen | {"confirmed": "yes"}, follow=True).content.decode()
    assert "Revoked 1 API key." in page
    assert [principal.key_name for principal in load_principals().values()] == ["other"]


def test_revoking_says_when_nothing_is_left_to_revoke(admin_client: Client) -> None:
    mint("laptop")
    revoke(ApiKey.objects.all())
    chosen = {"action": "revoke_selected", "_selected_action": [str(find_key("laptop").pk)]}
    assert "revoked already" in admin_client.post(KEYS, chosen).content.decode()


def test_a_model_is_added_with_aliases_and_options(admin_client: Client) -> None:
    form = model_form(aliases='["fast"]', engine_options='{"dtype": "float32"}')
    assert admin_client.post(f"{MODELS}add/", form).status_code == 302
    model = Model.objects.get()
    assert (model.id, model.aliases) == ("tiny", ["fast"])
    assert model.engine_options == {"dtype": "float32"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"aliases": "fast"}, "Enter a valid JSON."),
        ({"aliases": '"fast"'}, "Must be a JSON list of names"),
        ({"aliases": "[1]"}, "Must be a JSON list of names"),
        ({"aliases": '[""]'}, "Must be a JSON list of names"),
        ({"aliases": '[" fast"]'}, "Must be a JSON list of names"),
        ({"engine_options": "[]"}, "Must be a JSON object"),
        ({"engine_options": "null"}, "Must be a JSON object"),
        ({"default_sampling": '{"top_x": 1}'}, "Numbers for temperature, top_p, top_k"),
        ({"default_sampling": '{"top_p": true}'}, "Numbers for temperature, top_p, top_k"),
        ({"weights": ""}, "A vLLM model needs the folder of its weights."),
        ({"aliases": '["QUICK"]'}, "The name 'quick' is taken by other."),
        ({"aliases": '["other"]'}, "The name 'other' is taken by other."),
        ({"id": "Quick"}, "The name 'quick' is taken by other."),
        ({"id": "OTHER"}, "The name 'other' is taken by other."),
        ({"id": "with space"}, "Enter a valid value."),
        ({"context_tokens": 0}, "greater than or equal to 1"),
        ({"kv_offload_gib": -1}, "greater than or equal to 0"),
        ({"kv_offload_gib": 1, "kv_offload_dir": "kv"}, "Must be an absolute path."),
        ({"kv_offload_dir": "/srv/kv"}, "it needs kv_offload_gib."),
    ],
)
def test_a_model_that_would_not_work_is_refused_with_the_reason(
    admin_client: Client, changes: dict[str, object], message: str
) -> None:
    Model.objects.create(id="other", aliases=["quick"], context_tokens=1, enabled=False)
    page = admin_client.post(f"{MODELS}add/", model_form(**changes))
    assert page.status_code == 200
    assert message in unescape(page.content.decode())
    assert Model.objects.count() == 1


def test_the_form_shows_every_field_of_a_model() -> None:
    shown = {name for _, options in CatalogueAdmin.fieldsets for name in options["fields"]}
    assert shown == {field.name for field in Model._meta.fields} - {"created_at"}


def test_a_model_s_own_names_are_not_taken_from_it(admin_client: Client) -> None:
    Model.objects.create(id="tiny", aliases=["fast"], weights="tiny", context_tokens=1)
    form = model_form(aliases=json.dumps(["fast", "Tiny"]))
    assert admin_client.post(f"{MODELS}tiny/change/", form).status_code == 302
    assert Model.objects.get().aliases == ["fast", "Tiny"]


def test_a_change_is_checked_against_the_other_models(admin_client: Client) -> None:
    Model.objects.create(id="tiny", weights="tiny", context_tokens=1)
    Model.objects.create(id="other", aliases=["quick"], context_tokens=1)
    page = admin_client.post(f"{MODELS}tiny/change/", model_form(aliases='["quick"]'))
    assert "The name 'quick' is taken by other." in unescape(page.content.decode())


def test_a_model_s_id_cannot_be_changed_into_a_second_model(admin_client: Client) -> None:
    Model.objects.create(id="tiny", weights="tiny", context_tokens=1)
    admin_client.post(f"{MODELS}tiny/change/", model_form(id="copy"))
    assert list(Model.objects.values_list("id", "context_tokens")) == [("tiny", 2048)]


def test_every_change_nudges_the_gateways(
    admin_client: Client,
    monkeypatch: pytest.MonkeyPatch,
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    nudge = Mock()
    monkeypatch.setattr(nudges, "nudge", nudge)
    sent = {"post": "yes"}
    chosen = {"action": "delete_selected", "_selected_action": ["big"], **sent}
    for path, data, topic in (
        (f"{TEAMS}add/", {"name": "red"}, Topic.KEYS),
        (f"{MODELS}add/", model_form(), Topic.CATALOGUE),
        (f"{MODELS}add/", model_form(id="big"), Topic.CATALOGUE),
        (f"{MODELS}tiny/change/", model_form(capacity=2), Topic.CATALOGUE),
        (f"{MODELS}tiny/delete/", sent, Topic.CATALOGUE),
        (MODELS, chosen, Topic.CATALOGUE),
    ):
        nudge.reset_mock()
        with django_capture_on_commit_callbacks(execute=True):
            assert admin_client.post(path, data).status_code == 302
        nudge.assert_called_once()
        assert nudge.call_args.args[-1] is topic
    assert not Model.objects.exists()
