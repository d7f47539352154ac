"""Fallbacks in the admin."""

from __future__ import annotations

from html import unescape

import pytest
from django.test import Client

from inference.models import Model
from tests.unit.gateway.admin.forms import MODELS, model_form

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _models() -> None:
    near = Model.objects.create(id="near", context_tokens=1, backend="scripted")
    Model.objects.create(id="far", context_tokens=1, backend="scripted", fallback=near)


def refusal(client: Client, name: str, fallback: str) -> str:
    """Change a model's fallback, and return the page that says why that cannot be."""
    page = client.post(f"{MODELS}{name}/change/", model_form(id=name, fallback=fallback))
    assert page.status_code == 200
    return unescape(page.content.decode())


def test_a_model_is_given_a_fallback_that_others_have_too(admin_client: Client) -> None:
    form = model_form(fallback="near")
    assert admin_client.post(f"{MODELS}add/", form).status_code == 302
    assert Model.objects.get(pk="tiny").fallback_id == "near"
    form = model_form(id="tiny", fallback="")
    assert admin_client.post(f"{MODELS}tiny/change/", form).status_code == 302
    assert Model.objects.get(pk="tiny").fallback_id is None


def test_a_chain_and_a_circle_are_refused_with_the_way_out(admin_client: Client) -> None:
    page = refusal(admin_client, "near", "far")
    assert "near falls back to far, which falls back to near itself." in page
    assert "Choose a model that has none and is none." in page
    assert "near is its own fallback." in refusal(admin_client, "near", "near")
    Model.objects.create(id="other", context_tokens=1, backend="scripted")
    page = refusal(admin_client, "near", "other")
    assert "near falls back to other and is the fallback of far." in page
    page = refusal(admin_client, "other", "far")
    assert "other falls back to far, which falls back to near itself." in page


def test_a_fallback_is_not_deleted(admin_client: Client) -> None:
    admin_client.post(f"{MODELS}near/delete/", {"post": "yes"})
    assert Model.objects.filter(pk="near").exists()
