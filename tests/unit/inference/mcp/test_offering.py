"""Which requests are offered tools that the server runs."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from inference.mcp.offering import offers_own, offers_tools
from inference.request import RawRequest, RequestedServer, Tool, ToolChoice, ToolMode
from tests.contracts.requests import make_entry, make_request
from tests.unit.inference.mcp.servers import callers_request, stdio_server

SERVED = make_entry(mcp_servers=(stdio_server(),))
ASKED = callers_request("Hello.")
BROUGHT = (RequestedServer(name="wiki", url="https://mcp.example.com/"),)


def named(name: str) -> dict[str, Any]:
    return {"tool_choice": ToolChoice(mode=ToolMode.NAMED, name=name)}


def test_every_request_is_offered_the_operators() -> None:
    assert offers_tools(SERVED, ASKED)
    assert not offers_tools(make_entry(), ASKED)


def test_unless_they_are_there_for_those_who_name_one() -> None:
    entry = make_entry(mcp_servers=(stdio_server(),), offer_mcp_tools=False)
    mine = (Tool(name="mine", schema={}),)
    assert not offers_tools(entry, ASKED)
    assert offers_tools(entry, replace(ASKED, **named("now")))
    assert not offers_tools(entry, replace(ASKED, tools=mine, **named("mine")))


def test_a_request_may_bring_its_own() -> None:
    assert offers_tools(make_entry(), replace(ASKED, servers=BROUGHT))
    assert not offers_own(make_entry(), replace(ASKED, servers=BROUGHT))


@pytest.mark.parametrize(
    "request_",
    [make_request("Hello."), replace(ASKED, raw=RawRequest(path="/v1/messages", body=b"{}"))],
)
def test_the_services_own_and_raw_ones_are_offered_none(request_: Any) -> None:
    assert not offers_tools(SERVED, request_)


def test_a_limit_of_0_offers_none() -> None:
    entry = make_entry(mcp_servers=(stdio_server(),), tool_recursion_limit=0)
    assert not offers_tools(entry, replace(ASKED, servers=BROUGHT))
