"""Rows that bring MCP servers along: run where the operator allows it, else refused by name."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.batches.endpoints import MESSAGES, RESPONSES, Rules
from inference.catalogue import Catalogue
from inference.errors import ErrorCode, TandemError
from inference.request import RequestedServer
from jobs.packing import unpack_request
from tests.unit.gateway.batches.material import MODEL, TERMS, messages_body, reader, row

OPEN = msgspec.structs.replace(TERMS, rules=Rules(connectors=True))
URL = "https://mcp.test/"
CONNECTOR = {"type": "url", "name": "wiki", "url": URL, "authorization_token": "sk-one"}
TOOL = {
    "type": "mcp",
    "server_label": "wiki",
    "server_url": URL,
    "authorization": "sk-one",
    "require_approval": "never",
}
BODIES: dict[str, dict[str, Any]] = {
    MESSAGES: messages_body(mcp_servers=[CONNECTOR]),
    RESPONSES: {"model": MODEL, "input": "hi", "tools": [TOOL]},
}
PLACES = {MESSAGES: "mcp_servers", RESPONSES: "tools[0]"}


@pytest.mark.parametrize("endpoint", BODIES)
def test_they_go_to_the_engine_with_the_row(endpoint: str) -> None:
    work = reader(endpoint, OPEN).read(row(BODIES[endpoint]))
    assert unpack_request(work.request).servers == (
        RequestedServer(name="wiki", url=URL, path=PLACES[endpoint], token="sk-one"),
    )
    assert work.ignored_fields == ()
    assert b"sk-one" not in (work.echo or b"")


@pytest.mark.parametrize("endpoint", BODIES)
def test_they_are_refused_by_name_where_the_operator_does_not_allow_them(endpoint: str) -> None:
    with pytest.raises(TandemError) as refused:
        reader(endpoint).read(row(BODIES[endpoint]))
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert refused.value.param == PLACES[endpoint]
    assert refused.value.message.startswith(f"{PLACES[endpoint]}: ")


def test_a_toolset_without_a_server_is_refused_by_name_too() -> None:
    toolset = {"type": "mcp_toolset", "mcp_server_name": "wiki"}
    with pytest.raises(TandemError) as refused:
        reader(MESSAGES).read(row(messages_body(tools=[toolset])))
    assert refused.value.param == "tools.0"


def test_none_is_brought_by_an_empty_list() -> None:
    assert reader(MESSAGES).read(row(messages_body(mcp_servers=[]))).ignored_fields == ()


def test_of_a_row_that_travels_as_it_is_they_are_the_upstreams_matter() -> None:
    far = msgspec.structs.replace(TERMS.catalogue.entries[0], backend="anthropic")
    terms = msgspec.structs.replace(TERMS, catalogue=Catalogue([far]))
    sent = row(BODIES[MESSAGES])
    request = unpack_request(reader(MESSAGES, terms).read(sent).request)
    assert request.raw is not None
    assert request.raw.body == sent.body
