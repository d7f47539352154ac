"""Null characters in what asks for a page of the admin."""

from __future__ import annotations

import pytest
from django.conf import settings
from django.test import Client

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    "address",
    [
        "/admin/inference/model/a%00b/change/",
        "/admin/inference/upstream/%00/history/",
        "/admin/inference/mcpserver/%00/delete/",
        "/admin/batches/%00/",
    ],
)
def test_nothing_is_named_so(admin_client: Client, address: str) -> None:
    assert admin_client.get(address).status_code == 404


@pytest.mark.parametrize(
    "address",
    [
        "/admin/search/?s=%00&extended=1",
        "/admin/gateway/team/?q=%00",
        "/admin/autocomplete/?app_label=gateway&model_name=apikey&field_name=team&term=%00",
    ],
)
def test_nothing_is_looked_up_so(admin_client: Client, address: str) -> None:
    assert admin_client.get(address).status_code == 400


def test_no_session_is_named_so(client: Client) -> None:
    """A quoted cookie may hold any character."""
    client.cookies[settings.SESSION_COOKIE_NAME] = "a\0" * 8
    assert client.get("/admin/").status_code == 400


def test_the_api_answers_for_itself(client: Client) -> None:
    assert client.get("/control/v1/usage/daily?model=%00").status_code == 401
