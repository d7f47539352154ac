"""The landing page and the errors outside the API."""

from __future__ import annotations

import re

import pytest
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path
from pytest_django import Settings

from gateway import views


def broken(request: HttpRequest) -> HttpResponse:
    raise RuntimeError("a fault in a view")


def forbidden(request: HttpRequest) -> HttpResponse:
    raise PermissionDenied


urlpatterns = [
    path("broken", broken),
    path("admin/broken", broken),
    path("admin/forbidden", forbidden),
    path("admin/form", HttpResponse),
]
handler500 = views.server_error


@pytest.fixture
def client() -> Client:
    return Client(raise_request_exception=False)


def test_the_landing_page_shows_how_to_call_and_where_to_operate(client: Client) -> None:
    page = client.get("/").content.decode()
    assert "curl http://testserver/v1/messages" in page
    assert 'href="/admin/"' in page
    assert "prefers-color-scheme: dark" in page


def test_the_landing_page_loads_nothing_from_elsewhere(client: Client) -> None:
    page = client.get("/").content.decode()
    (icon,) = re.findall(r"<(?:script|link|img|iframe)[^>]*>", page)
    assert 'href="/static/' in icon
    assert not re.search(r"@import|url\(|(src|href)=.(https?:)?//", page)


def test_an_api_process_offers_no_admin(client: Client, settings: Settings) -> None:
    settings.TANDEM = settings.TANDEM.model_copy(update={"GATEWAY_ROLE": "api"})
    assert "/admin/" not in client.get("/").content.decode()


def test_head_is_answered_as_clients_that_look_for_life_expect(client: Client) -> None:
    response = client.head("/")
    assert response.status_code == 200
    assert response.content == b""


def test_another_method_on_the_root_is_an_api_error() -> None:
    response = Client(enforce_csrf_checks=True).post("/", "{}", content_type="application/json")
    assert response.status_code == 405
    assert response.json()["error"]["message"].startswith("POST is not allowed on /")


@pytest.mark.parametrize("method", ["get", "post", "put", "delete"])
def test_an_unknown_path_is_answered_in_the_api_s_envelope(method: str) -> None:
    response = getattr(Client(enforce_csrf_checks=True), method)("/nowhere")
    assert response.status_code == 404
    assert response["content-type"] == "application/json"
    body = response.json()
    assert body["type"] == "error"
    assert body["error"] == {"type": "not_found_error", "message": "/nowhere does not exist"}
    assert body["request_id"] == response["request-id"]


def test_a_host_that_is_not_answered_to_is_told_so_in_the_api_s_envelope(
    client: Client, settings: Settings
) -> None:
    settings.ALLOWED_HOSTS = ["tandem.example"]
    response = client.get("/control/v1/teams/me")
    assert response.status_code == 400
    assert response.json()["error"] == {"type": "invalid_request_error", "message": "Bad request"}
    page = client.get("/admin/")
    assert page.status_code == 400
    assert page["content-type"].startswith("text/html")


@pytest.mark.urls(__name__)
def test_a_fault_is_answered_in_the_api_s_envelope_and_tells_nothing(client: Client) -> None:
    response = client.get("/broken")
    assert response.status_code == 500
    assert response.json()["error"] == {"type": "api_error", "message": "Internal server error"}


@pytest.mark.urls(__name__)
def test_a_fault_in_the_admin_is_a_page(client: Client) -> None:
    response = client.get("/admin/broken")
    assert response.status_code == 500
    assert response["content-type"].startswith("text/html")


@pytest.mark.urls(__name__)
@pytest.mark.parametrize(
    ("method", "address", "status", "said"),
    [
        ("get", "/admin/broken", 500, "broken"),
        ("get", "/admin/forbidden", 403, "No role of your account"),
        ("post", "/admin/form", 403, "This form is no longer valid"),
        ("get", "/admin/nowhere", 404, "There is no such page"),
    ],
)
def test_what_goes_wrong_in_the_admin_is_a_page_of_ours(
    method: str, address: str, status: int, said: str
) -> None:
    client = Client(raise_request_exception=False, enforce_csrf_checks=True)
    response = getattr(client, method)(address)
    assert response.status_code == status
    page = response.content.decode()
    assert said in page
    assert 'href="/admin/"' in page
    # Without one of its own the browser asks for /favicon.ico, which is not there.
    assert 'rel="icon"' in page
    assert "<script" not in page
    assert " style=" not in page
