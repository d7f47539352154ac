"""Servers that a request brings along, in the loop."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from inference.backends.scripted import ScriptedBackend
from inference.errors import ErrorCode
from inference.events import Failed, ServerToolCall
from inference.mcp.entry import McpServerEntry
from inference.mcp.loop import ToolLoop
from inference.mcp.results import Outcome
from inference.request import RequestedServer
from tests.contracts.requests import collect, make_entry, text_of
from tests.unit.inference.mcp.servers import StubPool, StubSession, callers_request

SCRIPT = {"text": "", "tool_calls": [{"name": "now"}], "echo_results": True}


def _clock(name: str) -> StubSession:
    return StubSession(name, {"now": Outcome(f"noon at {name}")})


def _loop(pool: StubPool, *own: str, **fields: Any) -> ToolLoop:
    servers = tuple(McpServerEntry(name=name, transport="builtin") for name in own)
    entry = make_entry(engine_options=SCRIPT, mcp_servers=servers, **fields)
    return ToolLoop(pool, entry, ScriptedBackend(entry))


def _server(name: str) -> RequestedServer:
    return RequestedServer(name=name, url="https://mcp.test", token="sk-brought")


async def test_its_tools_are_run_and_it_is_left_afterwards() -> None:
    pool = StubPool(brought=[_clock("theirs")])
    events = await collect(_loop(pool), callers_request("When?", servers=(_server("theirs"),)))
    assert text_of(events) == "noon at theirs"
    assert [e.server for e in events if isinstance(e, ServerToolCall)] == ["theirs"]
    assert pool.open == 0


async def test_it_stands_beside_the_operator_s() -> None:
    pool = StubPool(_clock("ours"), brought=[_clock("theirs")])
    loop = _loop(pool, "ours")
    bare = await loop.count(callers_request("When?"))
    both = await loop.count(callers_request("When?", servers=(_server("theirs"),)))
    assert both > bare


async def test_one_that_cannot_be_used_fails_the_request_with_its_name() -> None:
    away = _clock("theirs")
    away.fault = "the host has no public address"
    pool = StubPool(brought=[away])
    events = await collect(_loop(pool), callers_request("When?", servers=(_server("theirs"),)))
    assert events == [
        Failed(
            code=ErrorCode.INVALID_REQUEST,
            message="mcp_servers: the server 'theirs' cannot be used: the host has no public "
            "address",
        )
    ]
    assert pool.open == 0


async def test_it_cannot_take_the_name_of_one_of_the_operator_s() -> None:
    pool = StubPool(_clock("clock"), brought=[_clock("clock")])
    events = await collect(
        _loop(pool, "clock"), callers_request("When?", servers=(_server("clock"),))
    )
    assert isinstance(events[0], Failed)
    assert events[0].code is ErrorCode.INVALID_REQUEST


async def test_it_is_refused_where_tools_are_off() -> None:
    pool = StubPool(brought=[_clock("theirs")])
    loop = _loop(pool, tool_recursion_limit=0)
    (failed,) = await collect(loop, callers_request("When?", servers=(_server("theirs"),)))
    assert isinstance(failed, Failed)
    assert failed.code is ErrorCode.INVALID_REQUEST
    assert "'theirs' cannot be used: the model runs no tools" in failed.message


@pytest.mark.parametrize(
    ("enabled", "exceptions", "offered"),
    [(True, (), True), (True, ("now",), False), (False, (), False), (False, ("now",), True)],
)
def test_the_caller_says_which_of_its_tools_are_offered(
    enabled: bool, exceptions: tuple[str, ...], offered: bool
) -> None:
    server = RequestedServer(name="a", url="b", enabled=enabled, exceptions=exceptions)
    assert server.allows("now") is offered


async def test_one_that_cannot_be_used_is_named_where_the_request_names_it() -> None:
    away = _clock("theirs")
    away.fault = "it does not answer"
    server = msgspec.structs.replace(_server("theirs"), path="tools[2]")
    events = await collect(
        _loop(StubPool(brought=[away])), callers_request("When?", servers=(server,))
    )
    (failed,) = events
    assert isinstance(failed, Failed)
    assert failed.message.startswith("tools[2]: the server 'theirs' cannot be used")
