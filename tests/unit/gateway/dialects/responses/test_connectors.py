"""MCP servers that a request brings along, as OpenAI's `mcp` tools."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.responses import ToolParam
from pydantic import TypeAdapter

from gateway.dialects.context import ParseContext
from gateway.dialects.responses.parse import to_request
from gateway.dialects.responses.shape import Shape, render
from gateway.dialects.responses.wire import decode
from inference.errors import TandemError
from inference.request import GenerationRequest, RequestedServer, ToolMode
from tests.openai_types import check_response
from tests.unit.gateway.dialects.responses.runs import ID

CONTEXT = ParseContext(request_id=ID, model="m", deadline_s=9.0, context_tokens=100)
WIKI = {
    "type": "mcp",
    "server_label": "wiki",
    "server_url": "https://mcp.test/",
    "require_approval": "never",
}
WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
KEYS = {"authorization": "sk-one", "headers": {"X-Key": "sk-two"}}


def read(*tools: dict[str, Any], **fields: Any) -> GenerationRequest:
    obj = {"model": "m", "input": "hi", "tools": list(tools)} | fields
    body, ignored = decode(obj, "reject", connectors=True)
    assert ignored == ()
    return to_request(body, CONTEXT)


def refused(*tools: dict[str, Any], connectors: bool = True, **fields: Any) -> TandemError:
    obj = {"model": "m", "input": "hi", "tools": list(tools)} | fields
    with pytest.raises(TandemError) as caught:
        to_request(decode(obj, connectors=connectors).body, CONTEXT)
    return caught.value


def test_it_is_the_officials_clients_shape() -> None:
    more = {"server_description": "A wiki.", "allowed_tools": {"tool_names": ["search"]}}
    TypeAdapter(ToolParam).validate_python(WIKI | KEYS | more)
    read(WIKI | KEYS | more)


def test_a_server_is_brought_beside_functions() -> None:
    request = read(WEATHER, WIKI | KEYS)
    assert [tool.name for tool in request.tools] == ["weather"]
    assert request.servers == (
        RequestedServer(
            name="wiki",
            url="https://mcp.test/",
            path="tools[1]",
            token="sk-one",
            headers={"x-key": "sk-two"},
        ),
    )


@pytest.mark.parametrize(
    ("allowed", "offered"),
    [
        (None, {"search": True, "delete": True}),
        (["search"], {"search": True, "delete": False}),
        ([], {"search": False, "delete": False}),
        ({"tool_names": ["search"]}, {"search": True, "delete": False}),
        ({}, {"search": True, "delete": True}),
    ],
)
def test_it_may_say_which_tools_are_offered(allowed: Any, offered: dict[str, bool]) -> None:
    (server,) = read(WIKI | {"allowed_tools": allowed}).servers
    assert {name: server.allows(name) for name in offered} == offered


@pytest.mark.parametrize(
    ("tools", "param"),
    [
        ([{"type": "mcp", "server_url": "https://x.test"}], "tools[0].server_label"),
        ([WIKI | {"server_label": "a b"}], "tools[0].server_label"),
        ([WIKI | {"server_url": "file:///etc/passwd"}], "tools[0].server_url"),
        ([WIKI | {"server_url": None, "connector_id": "connector_gmail"}], "tools[0].server_url"),
        ([WIKI | {"connector_id": "connector_gmail"}], "tools[0].connector_id"),
        ([WIKI | {"tunnel_id": "t"}], "tools[0].tunnel_id"),
        ([WEATHER, WIKI | {"require_approval": "always"}], "tools[1].require_approval"),
        ([WIKI | {"require_approval": {"never": {}}}], "tools[0].require_approval"),
        ([WIKI | {"allowed_tools": {"read_only": True}}], "tools[0].allowed_tools.read_only"),
        ([WIKI | {"allowed_tools": "search"}], "tools[0].allowed_tools"),
        ([WIKI, WIKI], "tools[1].server_label"),
        ([WIKI | {"server_label": f"w{n}"} for n in range(21)], "tools[20]"),
    ],
)
def test_what_is_wrong_is_refused_by_its_path(tools: list[dict[str, Any]], param: str) -> None:
    error = refused(*tools)
    assert error.param == param
    assert error.message.startswith(f"{param}: ")


def test_without_a_word_on_approval_nobody_wants_calls_to_be_run_unasked() -> None:
    unsaid = {name: value for name, value in WIKI.items() if name != "require_approval"}
    assert refused(unsaid).param == "tools[0].require_approval"


@pytest.mark.parametrize(
    "headers",
    [{"Host": "x"}, {"content-length": "3"}, {"Mcp-Session-Id": "1"}, {"a b": "c"}, {"a": "b\nc"}],
)
def test_headers_that_are_not_the_callers_are_refused(headers: dict[str, str]) -> None:
    assert (refused(WIKI | {"headers": headers}).param or "").startswith("tools[0].headers")


def test_it_is_refused_by_name_where_the_operator_does_not_allow_it() -> None:
    error = refused(WEATHER, WIKI, connectors=False)
    assert error.param == "tools[1]"
    assert "MCP servers" in error.message


@pytest.mark.parametrize("fields", [{}, {"tool_choice": "required"}])
def test_other_kinds_of_tools_are_skipped_as_ever(fields: dict[str, Any]) -> None:
    obj = {"model": "m", "input": "hi", "tools": [{"type": "web_search"}, WIKI]} | fields
    body, ignored = decode(obj, connectors=True)
    assert ignored == ("tools[0]",)
    assert to_request(body, CONTEXT).servers[0].path == "tools[1]"


def test_a_tool_of_theirs_may_be_demanded() -> None:
    choice = read(WIKI, tool_choice={"type": "mcp", "server_label": "wiki", "name": "search"})
    assert (choice.tool_choice.mode, choice.tool_choice.name) == (ToolMode.NAMED, "wiki__search")
    assert refused(
        WEATHER, tool_choice={"type": "mcp", "server_label": "wiki", "name": "search"}
    ).message.startswith("tool_choice: Tool 'wiki__search' not found")
    assert refused(WIKI, tool_choice={"type": "mcp", "server_label": "wiki"}).param == (
        "tool_choice.name"
    )


def test_where_only_some_functions_are_allowed_no_server_is() -> None:
    some = {
        "type": "allowed_tools",
        "mode": "auto",
        "tools": [{"type": "function", "name": "weather"}],
    }
    assert read(WEATHER, WIKI, tool_choice=some).servers == ()


def test_the_response_tells_of_it_without_its_keys() -> None:
    body = {"tools": [WIKI | KEYS | {"allowed_tools": ["search"]}]}
    response = render(Shape(id=ID, created_at_s=0, model="m", body=body), "in_progress")
    (told,) = response["tools"]
    assert told == WIKI | {"server_description": None, "allowed_tools": ["search"]}
    check_response(response)


def test_a_list_of_tools_that_is_sent_back_has_no_effect() -> None:
    listed = {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "wiki", "tools": []}
    obj = {"model": "m", "input": [listed, {"role": "user", "content": "hi"}]}
    assert len(to_request(decode(obj).body, CONTEXT).messages) == 1


@pytest.mark.parametrize("token", ["t\xf6ken", "key\r\nx: y", " key"])
def test_a_token_that_no_header_can_carry_is_refused_by_its_path(token: str) -> None:
    error = refused(WIKI | {"authorization": token})
    assert error.param == "tools[0].authorization"
    assert token not in error.message
