"""MCP servers that a request brings along, in the connector's newer and older form."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.dialects.anthropic.parse import to_request
from gateway.dialects.anthropic.wire import decode_count, decode_messages
from gateway.dialects.context import ParseContext
from inference.errors import TandemError
from inference.request import RequestedServer

CONTEXT = ParseContext(request_id="r", model="m", deadline_s=1)
SERVER = {"type": "url", "name": "clock", "url": "https://mcp.test/", "authorization_token": "sk"}
TOOLSET = {"type": "mcp_toolset", "mcp_server_name": "clock"}


def _body(**fields: Any) -> dict[str, Any]:
    turn = {"role": "user", "content": "When?"}
    return {"model": "m", "max_tokens": 5, "messages": [turn], **fields}


def _servers(**fields: Any) -> tuple[RequestedServer, ...]:
    body, ignored = decode_messages(_body(**fields), "reject", connectors=True)
    assert ignored == ()
    return to_request(body, CONTEXT).servers


def test_a_server_is_brought_with_all_its_tools() -> None:
    wanted = RequestedServer(name="clock", url="https://mcp.test/", token="sk")
    assert _servers(mcp_servers=[SERVER]) == (wanted,)
    assert _servers(mcp_servers=[SERVER], tools=[TOOLSET]) == (wanted,)
    assert _servers(mcp_servers=[SERVER | {"tool_configuration": None}]) == (wanted,)


@pytest.mark.parametrize(
    "token", ["t\xf6ken", "\u65e5\u672c", "key\r\nx: y", "key\x00", " key", "x" * 8193]
)
def test_a_token_that_no_header_can_carry_is_refused_by_its_path(token: str) -> None:
    with pytest.raises(TandemError) as refused:
        _servers(mcp_servers=[SERVER | {"authorization_token": token}])
    assert refused.value.param == "mcp_servers.0.authorization_token"
    assert token not in refused.value.message
    for taken in ("", "Bearer key", "x" * 8192):
        (server,) = _servers(mcp_servers=[SERVER | {"authorization_token": taken}])
        assert server.token == taken


@pytest.mark.parametrize(
    ("toolset", "offered"),
    [
        ({"configs": {"now": {"enabled": False}}}, {"now": False, "then": True}),
        ({"configs": {"now": {"defer_loading": True}}}, {"now": True, "then": True}),
        ({"default_config": {"enabled": False}}, {"now": False, "then": False}),
        (
            {"default_config": {"enabled": False}, "configs": {"now": {"enabled": True}}},
            {"now": True, "then": False},
        ),
    ],
)
def test_a_toolset_says_which_are_offered(
    toolset: dict[str, Any], offered: dict[str, bool]
) -> None:
    (server,) = _servers(mcp_servers=[SERVER], tools=[TOOLSET | toolset])
    assert {name: server.allows(name) for name in offered} == offered


@pytest.mark.parametrize(
    ("configuration", "offered"),
    [
        ({}, {"now": True, "then": True}),
        ({"enabled": True, "allowed_tools": ["now"]}, {"now": True, "then": False}),
        ({"enabled": False, "allowed_tools": ["now"]}, {"now": False, "then": False}),
        ({"allowed_tools": []}, {"now": False, "then": False}),
    ],
)
def test_the_older_form_says_it_with_the_server(
    configuration: dict[str, Any], offered: dict[str, bool]
) -> None:
    (server,) = _servers(mcp_servers=[SERVER | {"tool_configuration": configuration}])
    assert {name: server.allows(name) for name in offered} == offered


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"mcp_servers": [SERVER | {"url": "file:///etc/passwd"}]}, "mcp_servers.0.url"),
        ({"mcp_servers": [SERVER | {"name": "a b"}]}, "mcp_servers.0.name"),
        ({"mcp_servers": [SERVER, SERVER]}, "mcp_servers.1.name"),
        ({"mcp_servers": [SERVER | {"type": "stdio"}]}, "mcp_servers.0.type"),
        ({"tools": [TOOLSET]}, "tools.0.mcp_server_name"),
        ({"mcp_servers": [SERVER], "tools": [TOOLSET, TOOLSET]}, "tools.1.mcp_server_name"),
        ({"tools": [{"type": "mcp_toolset"}]}, "tools.0.mcp_server_name"),
    ],
)
def test_what_is_wrong_is_refused_by_its_path(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(TandemError) as caught:
        decode_messages(_body(**fields), connectors=True)
    assert caught.value.message.startswith(f"{path}: ")
    assert "sk" not in caught.value.message.split()


def test_they_are_ignored_and_listed_where_the_operator_does_not_allow_them() -> None:
    for servers in ([SERVER], [{"type": "nonsense"}], "nonsense"):
        body, ignored = decode_messages(_body(mcp_servers=servers, tools=[TOOLSET]))
        assert ignored == ("mcp_servers", "tools.0")
        assert to_request(body, CONTEXT).servers == ()


def test_a_count_takes_them_too() -> None:
    body, ignored = decode_count(_body(mcp_servers=[SERVER]), connectors=True)
    assert ignored == ()
    assert len(to_request(body, CONTEXT).servers) == 1


def test_a_tool_of_theirs_may_be_demanded() -> None:
    choice = {"type": "tool", "name": "now"}
    body = decode_messages(_body(mcp_servers=[SERVER], tool_choice=choice), connectors=True).body
    assert to_request(body, CONTEXT).tool_choice.name == "now"
