"""MCP servers in the admin."""

from __future__ import annotations

from html import unescape

import pytest
from django.test import Client

from gateway.admin.mcp_servers import McpServerAdmin
from inference.models import McpServer, Model
from tests.unit.gateway.admin.forms import MODELS, model_form

pytestmark = pytest.mark.django_db

SERVERS = "/admin/inference/mcpserver/"


def _form(**changes: object) -> dict[str, object]:
    return {
        "name": "wiki",
        "enabled": "on",
        "transport": "stdio",
        "command": "wiki-server",
        "url": "",
        "secrets": "{}",
        "allowed_tools": "",
        "timeout_s": 30,
        "max_output_bytes": 65536,
    } | changes


def test_a_server_is_added_with_its_secrets_as_references(admin_client: Client) -> None:
    form = _form(
        secrets='{"KEY": "${env:WIKI_KEY}"}', command="npx\n-y\nwiki server", allowed_tools="read"
    )
    assert admin_client.post(f"{SERVERS}add/", form).status_code == 302
    server = McpServer.objects.get()
    assert server.command == ["npx", "-y", "wiki server"]
    assert server.allowed_tools == ["read"]
    assert server.secrets == {"KEY": "${env:WIKI_KEY}"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "two words"}, "Enter a valid value."),
        ({"command": ""}, "A program needs its command."),
        ({"command": 'npx\n"open'}, 'Line 2: what begins with " must end with it'),
        ({"transport": "http"}, "A server that is reached over HTTP needs its URL."),
        ({"transport": "http", "url": "ftp://a.test"}, "Must be an http or https URL."),
        ({"transport": "http", "url": "http://me:pw@a.test/"}, "Must be an http or https URL."),
        ({"secrets": '{"KEY": "sk-plain"}'}, "Must be a JSON object whose values refer"),
        ({"secrets": '["${env:A}"]'}, "Must be a JSON object whose values refer"),
        ({"allowed_tools": "read, write"}, "Line 1: “read, write” is not one name."),
        ({"timeout_s": 0}, "greater than or equal to 0.1"),
        ({"max_output_bytes": 0}, "greater than or equal to 1"),
    ],
)
def test_a_server_that_would_not_work_is_refused_with_the_reason(
    admin_client: Client, changes: dict[str, object], message: str
) -> None:
    page = admin_client.post(f"{SERVERS}add/", _form(**changes))
    assert page.status_code == 200
    assert message in unescape(page.content.decode())
    assert not McpServer.objects.exists()


def test_the_form_shows_every_field_of_a_server() -> None:
    shown = {name for _, options in McpServerAdmin.fieldsets for name in options["fields"]}
    assert shown == {field.name for field in McpServer._meta.fields}


def test_a_server_s_name_cannot_be_changed_into_a_second_server(admin_client: Client) -> None:
    McpServer.objects.create(name="wiki", command=["wiki-server"])
    admin_client.post(f"{SERVERS}wiki/change/", _form(name="other"))
    assert [server.name for server in McpServer.objects.all()] == ["wiki"]


def test_a_model_is_given_servers(admin_client: Client) -> None:
    McpServer.objects.create(name="wiki", command=["wiki-server"])
    form = model_form(mcp_servers=["wiki"], tool_parser="hermes", offer_mcp_tools="on")
    assert admin_client.post(f"{MODELS}add/", form).status_code == 302
    model = Model.objects.get()
    assert [server.name for server in model.mcp_servers.all()] == ["wiki"]
    assert model.offer_mcp_tools


def test_a_vllm_model_needs_a_tool_parser_for_them(admin_client: Client) -> None:
    McpServer.objects.create(name="wiki", command=["wiki-server"])
    page = admin_client.post(f"{MODELS}add/", model_form(mcp_servers=["wiki"]))
    assert "by its tool parser only" in unescape(page.content.decode())


def test_the_list_has_commands_as_a_shell_takes_them(admin_client: Client) -> None:
    McpServer.objects.create(name="wiki", command=["wiki", "the notes"])
    assert "wiki 'the notes'" in unescape(admin_client.get(SERVERS).content.decode())
