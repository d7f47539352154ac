"""Whether an MCP server can be used from this process, and which tools it has."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from msgspec.structs import replace

from inference.connections import PATIENCE_S, Finding
from inference.mcp.entry import McpServerEntry
from inference.mcp.names import ListedTool
from inference.mcp.pool import open_session
from inference.mcp.session import ServerError


class ServerTools(NamedTuple):
    """A server's tools: those that models may call, the names of those that `allowed_tools` leaves
    out, and the names in there that it has no tool of."""

    offered: tuple[ListedTool, ...]
    withheld: tuple[str, ...]
    missing: tuple[str, ...]


async def list_tools(entry: McpServerEntry) -> ServerTools:
    """Connect to a server and list its tools.

    Raises `ServerError` saying what is wrong, also if it does not answer within `PATIENCE_S`.
    """
    session = open_session(replace(entry, allowed_tools=()))
    try:
        async with asyncio.timeout(PATIENCE_S):
            tools = await session.tools()
    except TimeoutError:
        reason = f"it does not answer within {PATIENCE_S:g} s"
        raise ServerError(reason, is_news=True) from None
    finally:
        await session.close()
    names = {tool.name for tool in tools}
    return ServerTools(
        offered=tuple(tool for tool in tools if entry.allows(tool.name)),
        withheld=tuple(tool.name for tool in tools if not entry.allows(tool.name)),
        missing=tuple(sorted(set(entry.allowed_tools) - names)),
    )


async def check_server(entry: McpServerEntry) -> list[Finding]:
    """Return what there is to say of a server, good or bad."""
    try:
        tools = await list_tools(entry)
    except ServerError as error:
        return [Finding(False, f"It cannot be used: {error}")]
    names = ", ".join(tool.name for tool in tools.offered)
    findings = [Finding(bool(names), f"It answers. Tools that models may call: {names or 'none'}.")]
    if tools.withheld:
        text = f"Not in allowed_tools, so not offered: {', '.join(tools.withheld)}."
        findings.append(Finding(True, text))
    if tools.missing:
        text = f"In allowed_tools, but it has no such tools: {', '.join(tools.missing)}."
        findings.append(Finding(False, text))
    return findings
