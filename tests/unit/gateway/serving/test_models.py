"""Which models' Messages travel as they are."""

from __future__ import annotations

import msgspec

from gateway.keys import Principal
from gateway.serving.models import parse_context, raw_entry, raw_parameters
from inference.catalogue import Catalogue
from inference.mcp.entry import McpServerEntry
from inference.request import Lane
from inference.upstreams import UpstreamEntry
from tests.contracts.requests import make_entry

ENTRY = make_entry(backend="anthropic", id="vendor/Far-1", aliases=("far",))
NEAR = make_entry(id="near")
SERVER = McpServerEntry(
    name="clock",
    transport="http",
    command=(),
    url="https://tools.example",
    secrets={},
    allowed_tools=(),
    timeout_s=5,
    max_output_bytes=1000,
)


def test_a_model_is_found_by_its_alias_if_its_upstream_speaks_this_api() -> None:
    catalogue = Catalogue([ENTRY, NEAR])
    assert raw_entry(catalogue, {"model": "FAR"}) is ENTRY
    for name in ("near", "nobody", "", None, 7, ["far"]):
        assert raw_entry(catalogue, {"model": name}) is None
    assert raw_entry(catalogue, {}) is None


def test_where_tools_run_here_a_request_is_translated() -> None:
    tooled = msgspec.structs.replace(ENTRY, mcp_servers=(SERVER,))
    assert raw_entry(Catalogue([tooled]), {"model": "far"}) is None
    off = msgspec.structs.replace(tooled, tool_recursion_limit=0)
    assert raw_entry(Catalogue([off]), {"model": "far"}) is off


def test_what_the_operator_has_set_is_known_here() -> None:
    options = {"parameters": {"max_tokens": 99}}
    assert raw_parameters(msgspec.structs.replace(ENTRY, upstream_options=options)) == {
        "max_tokens": 99
    }
    assert raw_parameters(ENTRY) == {}


def test_answers_of_an_upstream_share_no_prompt() -> None:
    far = UpstreamEntry(
        name="there",
        base_url="https://api.example.com",
        key="",
        connect_timeout_s=1,
        read_timeout_s=1,
        retries=0,
        requests_per_minute=None,
    )
    shared = [
        parse_context(
            msgspec.structs.replace(NEAR, upstream=upstream),
            Principal(key_id="k", key_name="k", team_id=1, team_name="t"),
            request_id="r",
            deadline_s=0,
            lane=Lane.REALTIME,
            cache_salt="s",
        ).shares_prompt
        for upstream in (None, far)
    ]
    assert shared == [True, False]
