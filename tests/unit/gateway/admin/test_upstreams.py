"""Upstreams in the admin, and the models that they run."""

from __future__ import annotations

from html import unescape

import pytest
from django.test import Client

from inference.models import Model, Upstream
from tests.unit.gateway.admin.forms import MODELS, model_form

pytestmark = pytest.mark.django_db

UPSTREAMS = "/admin/inference/upstream/"


def upstream_form(**changes: object) -> dict[str, object]:
    return {
        "name": "there",
        "base_url": "https://there.example/v1",
        "key": "${env:THEIR_API_KEY}",
        "connect_timeout_s": 10,
        "read_timeout_s": 300,
        "retries": 2,
    } | changes


def test_an_upstream_is_added_and_runs_a_model(admin_client: Client) -> None:
    assert admin_client.post(f"{UPSTREAMS}add/", upstream_form()).status_code == 302
    form = model_form(
        backend="openai",
        weights="",
        upstream="there",
        upstream_model="tiny-there",
        upstream_options='{"system": "Be brief."}',
    )
    assert admin_client.post(f"{MODELS}add/", form).status_code == 302

    model = Model.objects.get()
    assert model.upstream == Upstream.objects.get()
    assert (model.upstream_model, model.upstream_options) == ("tiny-there", {"system": "Be brief."})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"base_url": "there.example"}, "The address must begin with https://"),
        ({"base_url": "https://user:secret@there.example"}, "must not contain a user"),
        ({"key": "sk-1234"}, "the key itself is not kept here"),
        ({"name": "with space"}, "Enter a valid value."),
        ({"read_timeout_s": 0}, "greater than or equal to 0.1"),
        ({"requests_per_minute": 0}, "greater than or equal to 1"),
    ],
)
def test_an_upstream_that_would_not_work_is_refused_with_the_reason(
    admin_client: Client, changes: dict[str, object], message: str
) -> None:
    page = admin_client.post(f"{UPSTREAMS}add/", upstream_form(**changes))

    assert page.status_code == 200
    assert message in unescape(page.content.decode())
    assert not Upstream.objects.exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"backend": "openai"}, "This backend needs one."),
        ({"backend": "vllm", "upstream": "there"}, "This backend runs here."),
        (
            {"backend": "openai", "upstream": "there", "upstream_options": '{"sytem": 1}'},
            "unknown field `sytem`",
        ),
    ],
)
def test_a_model_that_nobody_would_run_is_refused_with_the_reason(
    admin_client: Client, changes: dict[str, object], message: str
) -> None:
    admin_client.post(f"{UPSTREAMS}add/", upstream_form())
    page = admin_client.post(f"{MODELS}add/", model_form(**changes))

    assert page.status_code == 200
    assert message in unescape(page.content.decode())
    assert not Model.objects.exists()


def test_an_upstream_that_runs_models_is_not_deleted(admin_client: Client) -> None:
    admin_client.post(f"{UPSTREAMS}add/", upstream_form())
    admin_client.post(f"{MODELS}add/", model_form(backend="openai", weights="", upstream="there"))
    admin_client.post(f"{UPSTREAMS}there/delete/", {"post": "yes"})

    assert Upstream.objects.exists()


def test_the_key_is_shown_nowhere(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THEIR_API_KEY", "sk-planted-secret")
    admin_client.post(f"{UPSTREAMS}add/", upstream_form())

    for page in (UPSTREAMS, f"{UPSTREAMS}there/change/", f"{UPSTREAMS}there/history/"):
        content = admin_client.get(page).content.decode()
        assert "there" in content
        assert "sk-planted-secret" not in content
