"""The most that a request can cost, whatever its model makes of it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gateway.accounting.reserve import most_micros
from inference.catalogue import ModelEntry
from inference.mcp.entry import McpServerEntry
from inference.request import (
    GenerationRequest,
    ImagePart,
    Message,
    Owner,
    Part,
    RawRequest,
    RequestedServer,
    Role,
    ServerToolCallPart,
    ServerToolResultPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from jobs.pricing import TEMPLATE_TOKENS
from tests.contracts.requests import make_entry, make_request
from tests.unit.jobs.prices import make_price

# A micro-unit for a token of input, and two for one of output.
PRICE = make_price()
CONTEXT = 100_000
BODY_BYTES = 1000
LONGEST = 64
ASKED = replace(make_request("Hello.", max_tokens=LONGEST), owner=Owner(team_id=1, key_id="key-1"))
CLOCK = McpServerEntry(name="clock", transport="builtin")


def prompt_of(request: GenerationRequest, **entry: Any) -> int:
    """Return for how many tokens of a prompt is held."""
    found: ModelEntry = make_entry(**({"context_tokens": CONTEXT} | entry))
    return most_micros(PRICE, found, request, BODY_BYTES) - 2 * LONGEST


def saying(*parts: Part) -> GenerationRequest:
    return replace(ASKED, messages=(Message(role=Role.USER, parts=parts),))


def test_a_prompt_has_no_more_tokens_than_its_body_has_bytes_but_for_the_template() -> None:
    assert prompt_of(ASKED) == BODY_BYTES + TEMPLATE_TOKENS


@pytest.mark.parametrize(
    "part",
    [
        TextPart("ü" * 5000),
        ToolCallPart(id="1", name="f", arguments="x" * 10_000),
        ToolResultPart(call_id="1", parts=(TextPart("x" * 10_000),)),
        ServerToolCallPart(id="1", server="s", name="f", arguments="x" * 10_000),
        ServerToolResultPart(call_id="1", text="x" * 10_000),
    ],
)
def test_what_an_earlier_response_said_is_not_in_the_body(part: Part) -> None:
    assert prompt_of(saying(part)) >= 10_000 + TEMPLATE_TOKENS


@pytest.mark.parametrize("nested", [True, False])
def test_an_image_has_as_many_tokens_as_it_likes(nested: bool) -> None:
    image = ImagePart("image/png", b"x")
    part = ToolResultPart(call_id="1", parts=(image,)) if nested else image
    assert prompt_of(saying(part)) == CONTEXT


def test_who_knows_what_an_upstream_fetches() -> None:
    raw = RawRequest(path="/v1/messages", body=b"{}")
    assert prompt_of(replace(ASKED, raw=raw)) == CONTEXT


def test_the_gateway_does_not_know_what_tools_of_servers_say() -> None:
    assert prompt_of(ASKED, mcp_servers=(CLOCK,)) == CONTEXT
    assert prompt_of(ASKED, mcp_servers=(CLOCK,), offer_mcp_tools=False) < CONTEXT
    brought = (RequestedServer(name="wiki", url="https://mcp.example.com/"),)
    assert prompt_of(replace(ASKED, servers=brought)) == CONTEXT


def test_what_the_operator_says_on_the_way_is_paid_for() -> None:
    options = {"system": "x" * 5000, "parameters": {"tools": [{"name": "y" * 3000}]}}
    assert prompt_of(ASKED, upstream_options=options) > BODY_BYTES + TEMPLATE_TOKENS + 8000


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_an_answer_is_as_long_as_the_operator_lets_it_be(name: str) -> None:
    def held(limit: int) -> int:
        options = {"parameters": {name: limit}}
        entry = make_entry(context_tokens=CONTEXT, upstream_options=options)
        return most_micros(PRICE, entry, ASKED, BODY_BYTES)

    assert held(9000) - held(1000) == 2 * 8000
    assert held(10) == held(20)


def test_of_answers_that_share_a_prompt_only_the_first_pays_for_it() -> None:
    another = replace(ASKED, choice=1)
    assert prompt_of(another) == 0
    assert prompt_of(replace(another, shares_prompt=False)) == BODY_BYTES + TEMPLATE_TOKENS


def test_without_a_price_nothing_is_held() -> None:
    assert most_micros(None, make_entry(), ASKED, BODY_BYTES) == 0
