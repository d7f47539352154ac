"""Tests of connections in the admin, on a real MCP server and the tests' own upstream."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal
from django.contrib.auth.models import Permission, User
from django.test import Client

from inference.models import McpServer, Model, Upstream
from tests.contracts.requests import make_entry
from tests.unit.inference.mcp.servers import SERVER
from tests.upstream_server import UpstreamServer, error_reply

pytestmark = pytest.mark.django_db

UPSTREAMS = "/admin/inference/upstream/"
SERVERS = "/admin/inference/mcpserver/"
KEY = "sk-planted-secret"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[UpstreamServer]:
    """Return an upstream that runs in a thread of its own."""
    monkeypatch.setenv("THEIR_API_KEY", KEY)
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(UpstreamServer(make_entry())) as running,
    ):
        yield running


def add_upstream(name: str, url: str, *models: str) -> None:
    upstream = Upstream.objects.create(name=name, base_url=f"{url}/v1", key="${env:THEIR_API_KEY}")
    for model in models:
        Model.objects.create(id=model, backend="openai", upstream=upstream, context_tokens=1000)


def add_server(name: str, **fields: Any) -> None:
    McpServer.objects.create(**({"name": name, "command": [sys.executable, str(SERVER)]} | fields))


def text_of(response: Any) -> str:
    assert response.status_code == 200
    return unescape(response.content.decode())


def test_an_upstream_is_tested_by_its_models(admin_client: Client, server: UpstreamServer) -> None:
    add_upstream("there", server.url, "near", "far")
    text = text_of(admin_client.post(f"{UPSTREAMS}there/test/"))

    assert "near: it begins to answer after" in text
    assert "far: it begins to answer after" in text
    assert "by the gateway that shows this page" in text
    assert "check_engine MODEL" in text


def test_what_an_upstream_refuses_is_told_without_the_key(
    admin_client: Client, server: UpstreamServer
) -> None:
    add_upstream("there", server.url, "near")
    said = {"message": f"<b>Incorrect</b> key: {KEY}", "type": "authentication_error"}
    server.replies.append(error_reply(401, said))
    response = admin_client.post(f"{UPSTREAMS}there/test/")

    assert "<b>Incorrect</b> key: [secret]" in text_of(response)
    assert b"<b>Incorrect" not in response.content


def test_a_server_s_tools_are_listed(admin_client: Client) -> None:
    add_server("tests", allowed_tools=["echo", "gone"])
    text = text_of(admin_client.post(f"{SERVERS}tests/test/"))

    assert "Tools that models may call: echo." in text
    assert "so not offered: fail, " in text
    assert "it has no such tools: gone." in text
    assert "check_mcp_server NAME" in text


def test_several_are_tested_at_once(admin_client: Client) -> None:
    add_server("builtin", transport="builtin")
    add_server("gone", command=["/nowhere/at/all"])
    form = {"action": "test_connections", "_selected_action": ["gone", "builtin"]}
    text = text_of(admin_client.post(SERVERS, form))

    assert "Tools that models may call: current_time, calculate." in text
    assert "It cannot be used: [Errno 2] No such file or directory" in text


def test_names_with_any_letters_are_found(admin_client: Client) -> None:
    add_server("a_b-c", transport="builtin")
    page = admin_client.get(f"{SERVERS}a_5Fb-c/change/").content.decode()

    assert f'action="{SERVERS}a_5Fb-c/test/"' in page
    assert "current_time" in text_of(admin_client.post(f"{SERVERS}a_5Fb-c/test/"))


@pytest.mark.parametrize("base", [UPSTREAMS, SERVERS])
def test_nothing_is_tested_by_looking(admin_client: Client, base: str) -> None:
    add_server("it", transport="builtin")
    add_upstream("it", "http://127.0.0.1:9")

    assert admin_client.get(f"{base}it/test/").status_code == 405
    assert admin_client.post(f"{base}other/test/").status_code == 404


def test_another_site_s_form_tests_nothing(admin_user: User) -> None:
    add_server("it", transport="builtin")
    client = Client(enforce_csrf_checks=True)
    client.force_login(admin_user)

    assert client.post(f"{SERVERS}it/test/").status_code == 403


@pytest.mark.parametrize(("permission", "status"), [("view", 403), ("change", 200)])
def test_it_takes_the_permission_to_change(client: Client, permission: str, status: int) -> None:
    add_server("it", transport="builtin")
    operator = User.objects.create_user("operator", is_staff=True)
    operator.user_permissions.add(Permission.objects.get(codename=f"{permission}_mcpserver"))
    client.force_login(operator)

    assert client.post(f"{SERVERS}it/test/").status_code == status
    offered = "Test connection" in client.get(f"{SERVERS}it/change/").content.decode()
    assert offered is (status == 200)


@pytest.mark.parametrize("base", [UPSTREAMS, SERVERS])
def test_a_new_entry_has_nothing_to_test(admin_client: Client, base: str) -> None:
    assert "Test connection" not in text_of(admin_client.get(f"{base}add/"))
