"""What a new install gets, once."""

from __future__ import annotations

import pytest
from django.contrib.auth import authenticate, get_user_model
from django.test import RequestFactory

from gateway.keys import digest, load_principals
from gateway.supervise import first_run
from inference.models import Model
from inference.weights import DEFAULT_MODEL

pytestmark = pytest.mark.django_db


def test_the_operator_can_log_in_with_the_password_shown() -> None:
    password = first_run.make_operator()
    request = RequestFactory().post("/admin/login/")
    user = authenticate(request, username="admin", password=password)
    assert user is not None
    assert user.is_superuser


def test_the_operators_account_is_made_once() -> None:
    assert first_run.make_operator()
    assert first_run.make_operator() is None


def test_an_operator_of_another_name_is_enough() -> None:
    get_user_model().objects.create_superuser("root", password="x")
    assert first_run.make_operator() is None


def test_the_first_key_works_and_is_minted_once() -> None:
    key = first_run.mint_first_key()
    assert key is not None
    assert load_principals()[digest(key)].team_name == "default"
    assert first_run.mint_first_key() is None


def test_an_empty_catalogue_gets_the_default_model() -> None:
    first_run.migrate()
    assert [model.id for model in Model.objects.all()] == [DEFAULT_MODEL]
    assert first_run.serves_default_model()


def test_a_catalogue_without_the_default_model_is_left_so() -> None:
    Model.objects.create(id="other", context_tokens=100)
    first_run.migrate()
    assert [model.id for model in Model.objects.all()] == ["other"]
    assert not first_run.serves_default_model()
