"""Keys of other services never get into a record."""

from __future__ import annotations

import json
from typing import Any

from gateway.accounting.credentials import HIDDEN, hide_in_body


def _hidden(obj: dict[str, Any]) -> Any:
    return json.loads(hide_in_body(json.dumps(obj).encode()))


def test_a_token_of_a_connector_is_hidden_and_nothing_else() -> None:
    server = {"type": "url", "name": "a", "url": "https://a.test", "authorization_token": "sk-1"}
    obj = {"model": "m", "mcp_servers": [server, server | {"authorization_token": None}]}
    assert _hidden(obj) == {
        "model": "m",
        "mcp_servers": [
            server | {"authorization_token": HIDDEN},
            server | {"authorization_token": None},
        ],
    }


def test_the_keys_of_an_openai_tool_are_hidden() -> None:
    tool = {"type": "mcp", "server_label": "a", "authorization": "sk-1", "headers": {"k": "sk-2"}}
    own = {"type": "function", "name": "authorization", "headers": "mine"}
    assert _hidden({"tools": [tool, own, 1]}) == {
        "tools": [tool | {"authorization": HIDDEN, "headers": HIDDEN}, own, 1]
    }


def test_a_body_without_any_is_kept_byte_for_byte() -> None:
    for body in (b'{"a" : 1.0}', b'{"mcp_servers" : [] }', b'{"tools":[{"type": "mcp"}]}'):
        assert hide_in_body(body) == body


def test_one_that_comes_twice_or_is_spelled_otherwise_is_hidden_too() -> None:
    server = b'[{"authorization_token": "sk-1"}]'
    for body in (
        b'{"mcp_servers": %b, "mcp_servers": []}' % server,
        b'{"mcp\\u005fservers": %b}' % server,
        b'{"mcp_servers": [{"authorization\\u005ftoken": "sk-1"}]}',
    ):
        assert b"sk-1" not in hide_in_body(body)


def test_whatever_is_in_their_place_does_no_harm() -> None:
    values: list[Any] = [None, 1, "mcp", {"authorization_token": 1}, [None, "mcp", []]]
    for value in values:
        obj = {"mcp_servers": value, "tools": value}
        assert _hidden(obj) == obj
