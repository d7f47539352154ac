"""Tests of connections to real MCP servers, over standard streams and over HTTP."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from inference.mcp import check
from inference.mcp.check import check_server, list_tools
from inference.mcp.entry import McpServerEntry
from inference.mcp.session import ServerError
from tests.unit.inference.mcp.servers import free_port, serving, stdio_server

KEY = "sk-planted-secret"


@asynccontextmanager
async def _answering(status: str, body: str) -> AsyncIterator[str]:
    """Run a web server that answers everything so; give its URL."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        length = f"content-length: {len(body)}\r\nconnection: close"
        writer.write(f"HTTP/1.1 {status}\r\n{length}\r\n\r\n{body}".encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"


def _web(url: str, **secrets: str) -> McpServerEntry:
    return McpServerEntry(name="web", transport="http", url=url, secrets=secrets)


async def test_a_program_has_its_tools_listed() -> None:
    (finding,) = await check_server(stdio_server())

    assert finding.ok
    assert finding.text.startswith("It answers. Tools that models may call: echo, fail,")


async def test_a_server_over_http_has_its_tools_listed() -> None:
    port = free_port()
    async with serving(port):
        (finding,) = await check_server(_web(f"http://127.0.0.1:{port}/mcp"))

    assert finding.ok
    assert "read_header" in finding.text


async def test_tools_that_are_not_offered_and_that_there_are_not_are_told() -> None:
    answers, withheld, missing = await check_server(
        stdio_server(allowed_tools=("echo", "gone", "away"))
    )

    assert answers == (True, "It answers. Tools that models may call: echo.")
    assert withheld.ok
    assert withheld.text.startswith("Not in allowed_tools, so not offered: fail, ")
    assert missing == (False, "In allowed_tools, but it has no such tools: away, gone.")


async def test_a_server_without_any_tool_for_models_is_of_no_use() -> None:
    answers, *_ = await check_server(stdio_server(allowed_tools=("gone",)))

    assert answers == (False, "It answers. Tools that models may call: none.")


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (
            stdio_server(secrets={"KEY": "${env:SURELY_NOT_SET}"}),
            "the environment has no SURELY_NOT_SET",
        ),
        (
            McpServerEntry(name="bad", transport="stdio", command=("/nowhere/at/all",)),
            "[Errno 2] No such file or directory: '/nowhere/at/all'",
        ),
        (
            McpServerEntry(name="brief", transport="stdio", command=("true",)),
            "its program ended",
        ),
        # The discard port: nobody listens there.
        (_web("http://127.0.0.1:9/mcp"), "it refuses the connection"),
    ],
)
async def test_what_is_wrong_is_told(entry: McpServerEntry, reason: str) -> None:
    assert await check_server(entry) == [(False, f"It cannot be used: {reason}")]


async def test_a_server_that_lets_nobody_in_is_told_in_its_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WEB_KEY", KEY)
    async with _answering("401 Unauthorized", f"unknown token {KEY}") as url:
        found = await check_server(_web(url, Authorization="Bearer ${env:WEB_KEY}"))

    assert found == [
        (False, "It cannot be used: it answers 401 Unauthorized: unknown token [secret]")
    ]


@pytest.mark.parametrize("status", ["404 Not Found", "500 Internal Server Error"])
async def test_an_address_at_which_no_server_is_is_told_by_its_status(status: str) -> None:
    async with _answering(status, "<html>") as url:
        found = await check_server(_web(url))

    assert found == [(False, f"It cannot be used: it answers {status} at this URL")]


async def test_what_a_server_says_beside_its_status_is_told_too() -> None:
    said = '{"jsonrpc": "2.0", "id": null, "error": {"code": -32602, "message": "No such client."}}'
    json = "400 Bad Request\r\ncontent-type: application/json"
    async with _answering(json, said) as url:
        found = await check_server(_web(url))

    reason = "it answers 400 Bad Request at this URL: No such client."
    assert found == [(False, f"It cannot be used: {reason}")]


async def test_a_server_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "PATIENCE_S", 0.2)
    silent = (sys.executable, "-c", "import sys; sys.stdin.read()")
    entry = McpServerEntry(name="silent", transport="stdio", command=silent)

    with pytest.raises(ServerError, match=r"^it does not answer within 0\.2 s$"):
        await list_tools(entry)


async def test_a_server_that_quotes_its_secret_in_a_tool_s_description(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("THE_KEY", KEY)
    entry = stdio_server("leaky", secrets={"PLANTED": "${env:THE_KEY}"})
    tools = {tool.name: tool for tool in (await list_tools(entry)).offered}

    assert tools["boast"].description == "Works with [secret]."
    assert tools["boast"].schema["properties"]["key"]["default"] == "[secret]"
