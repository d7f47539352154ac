"""Who may call what, and how errors are told."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import pytest
from django.db import OperationalError
from django.test import Client
from django.utils import timezone

from gateway.control import teams
from gateway.control.urls import ROUTES
from gateway.keys import find_key, mint, revoke
from gateway.models import ApiKey, Scope
from tests.unit.gateway.control.conftest import Caller

pytestmark = pytest.mark.django_db

SOME_ID = "12345678-1234-5678-1234-567812345678"
PUBLIC = {"openapi.json"}
PATHS = [
    str(route.pattern).replace("<str:request_id>", SOME_ID).replace("<uuid:key_id>", SOME_ID)
    for route in ROUTES
]
CHANGES: list[tuple[str, str, object]] = [
    ("POST", "billing/topups?nonce=n", {"amount_micros": 1}),
    ("POST", "auth/api-keys", {"name": "x"}),
    ("DELETE", f"auth/api-keys/{SOME_ID}", None),
    ("PATCH", "teams/me", {"zero_data_retention_enabled": True}),
]
READS = ["activity", "activity/models", "usage/daily", "usage/summary", "billing/summary"]
READS += ["billing/transactions", "auth/api-keys", "teams/me"]


def assert_error(response: Any, status: int, kind: str, message: str) -> None:
    assert response.status_code == status
    assert response["content-type"] == "application/json"
    body = response.json()
    assert body["type"] == "error"
    assert body["error"]["type"] == kind
    assert message in body["error"]["message"]
    assert body["status_code"] == status
    assert body["request_id"] == response["request-id"]
    assert response["request-id"].startswith("req_")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "POST", "PATCH", "DELETE", "PUT", "OPTIONS"])
@pytest.mark.parametrize("slash", ["", "/"])
def test_every_route_but_the_document_wants_a_key(
    client: Client, path: str, method: str, slash: str
) -> None:
    response = client.generic(method, f"/control/v1/{path}{slash}")
    if path in PUBLIC:
        assert response.status_code == (200 if method == "GET" else 405)
    else:
        assert_error(response, 401, "authentication_error", "no API key")


def test_a_key_is_taken_from_either_header_and_x_api_key_wins(client: Client) -> None:
    key = mint("laptop")
    for headers in (
        {"x-api-key": key},
        {"authorization": f"Bearer {key}"},
        {"authorization": f"bearer  {key}"},
        {"x-api-key": key, "authorization": "Bearer wrong"},
    ):
        assert client.get("/control/v1/teams/me", headers=headers).status_code == 200
    for headers in (
        {"x-api-key": "wrong", "authorization": f"Bearer {key}"},
        {"authorization": f"Basic {key}"},
        {"authorization": key},
        {"x-api-key": "", "authorization": "Bearer "},
    ):
        assert client.get("/control/v1/teams/me", headers=headers).status_code == 401


def test_a_revoked_key_is_refused_like_an_unknown_one(caller: Caller) -> None:
    revoke(ApiKey.objects.all())
    assert_error(caller.get("teams/me"), 401, "authentication_error", "invalid x-api-key")


def test_an_expired_key_is_refused_and_told_why(caller: Caller) -> None:
    ApiKey.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert_error(caller.get("teams/me"), 401, "authentication_error", "has expired")


@pytest.mark.parametrize("path", READS)
def test_reading_takes_the_scope_read_or_admin(path: str) -> None:
    mint("plain", scopes=[Scope.INFERENCE, Scope.BATCHES])
    for scope in (Scope.READ, Scope.ADMIN):
        assert Caller(mint(scope, scopes=[scope])).get(path).status_code == 200
    response = Caller(mint("other", scopes=[Scope.INFERENCE, Scope.BATCHES])).get(path)
    assert_error(response, 403, "permission_error", "lacks the scope 'read', which GET")


@pytest.mark.parametrize(("method", "path", "body"), CHANGES)
def test_changing_takes_the_scope_admin(method: str, path: str, body: object) -> None:
    scopes = [scope for scope in Scope.values if scope != Scope.ADMIN]
    response = Caller(mint("other", scopes=scopes)).send(method, path, body)
    assert_error(response, 403, "permission_error", f"lacks the scope 'admin', which {method}")


@pytest.mark.parametrize(
    "path", ["nothing", "activity/not-an-id", f"activity/{SOME_ID}", "activity/models/x"]
)
def test_what_does_not_exist_is_answered_in_the_envelope(caller: Caller, path: str) -> None:
    assert_error(caller.get(path), 404, "not_found_error", "")


@pytest.mark.parametrize("path", ["/control", "/control/", "/control/v2/activity"])
def test_what_lies_beside_the_api_is_answered_in_the_envelope(client: Client, path: str) -> None:
    assert_error(client.get(path), 404, "not_found_error", f"{path} does not exist")


def test_a_wrong_method_is_told_the_right_ones(caller: Caller) -> None:
    response = caller.send("PUT", "teams/me", {})
    assert_error(response, 405, "invalid_request_error", "PUT")
    assert response["allow"] == "GET, HEAD, PATCH"


def test_a_body_that_is_not_json_is_refused(caller: Caller) -> None:
    client = Client(headers={"x-api-key": mint("admin", "blue", scopes=Scope.values)})
    deep = "[" * 100_000
    json = "application/json"
    for body, content_type in (("{", json), (deep, json), ("a=1", "text/plain")):
        response = client.patch("/control/v1/teams/me", body, content_type=content_type)
        assert_error(response, 400, "invalid_request_error", "")


def test_any_accept_header_gets_json(client: Client) -> None:
    headers = {"x-api-key": mint("laptop"), "accept": "text/html"}
    response = client.get("/control/v1/teams/me", headers=headers)
    assert response["content-type"] == "application/json"


def test_no_answer_may_be_stored_by_a_cache(caller: Caller) -> None:
    for path, status in (("teams/me", 200), ("activity?page=x", 400), (f"activity/{SOME_ID}", 404)):
        response = caller.send("GET", path)
        assert (response.status_code, response["cache-control"]) == (status, "no-store")


def test_a_database_that_does_not_answer_is_said_to_be_so(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = Mock(side_effect=OperationalError("secret detail"))
    monkeypatch.setattr(teams, "set_zero_data_retention", away)
    response = caller.send("PATCH", "teams/me", {"zero_data_retention_enabled": True})
    assert_error(response, 503, "api_error", "the database did not answer")
    assert response["retry-after"] == "1"


def test_a_fault_of_our_own_tells_nothing(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = Mock(side_effect=RuntimeError("secret detail"))
    monkeypatch.setattr(teams, "set_zero_data_retention", fault)
    response = caller.send("PATCH", "teams/me", {"zero_data_retention_enabled": True})
    assert_error(response, 500, "api_error", "Internal server error")


def test_authentication_is_one_look_into_an_index(
    caller: Caller, django_assert_num_queries: Any
) -> None:
    with django_assert_num_queries(1) as queries:
        assert caller.get("teams/me").status_code == 200
    assert '"digest" = ' in queries[0]["sql"]


def test_another_team_s_key_can_be_neither_seen_nor_revoked(
    caller: Caller, stranger: Caller
) -> None:
    assert str(caller.key.id) not in stranger.get("auth/api-keys").content.decode()
    response = stranger.send("DELETE", f"auth/api-keys/{caller.key.id}")
    assert_error(response, 404, "not_found_error", "there is no API key")
    assert find_key(str(caller.key.id)).revoked_at is None


def test_an_unknown_key_cannot_be_revoked(caller: Caller) -> None:
    response = caller.send("DELETE", f"auth/api-keys/{uuid.uuid4()}")
    assert_error(response, 404, "not_found_error", "there is no API key")
