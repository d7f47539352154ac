"""MCP servers that a request brings along: Anthropic's connector, in its newer and its older form.

Since `mcp-client-2025-11-20` a `mcp_toolset` among the tools says which of a server's tools are
offered; before, the server's own `tool_configuration` did (contracts 15).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field

from gateway.dialects.anthropic.tools import AnyTool, McpToolset
from gateway.dialects.connectors import MAX_SERVERS, ServerName, ServerToken, ServerUrl
from gateway.dialects.validation import Wire, invalid
from inference.request import RequestedServer


class McpToolConfiguration(Wire):
    """Which of a server's tools are offered, in the connector's older form."""

    enabled: bool | None = None
    allowed_tools: list[str] | None = None


class McpServerBody(Wire):
    """A server that the request brings along. Its token goes to it and nowhere else."""

    type: Literal["url"]
    name: ServerName
    url: ServerUrl
    authorization_token: ServerToken | None = None
    tool_configuration: McpToolConfiguration | None = None


McpServers = Annotated[list[McpServerBody], Field(max_length=MAX_SERVERS, fail_fast=True)]


def check_connectors(
    servers: Sequence[McpServerBody] | None, tools: Sequence[AnyTool] | None
) -> None:
    """Raise INVALID_REQUEST unless names are unique and every toolset has its server."""
    names: set[str] = set()
    for index, server in enumerate(servers or ()):
        if server.name in names:
            raise invalid(f"mcp_servers.{index}.name: names must be unique: '{server.name}'")
        names.add(server.name)
    seen: set[str] = set()
    for index, toolset in _toolsets(tools):
        name = toolset.mcp_server_name
        if name not in names:
            raise invalid(f"tools.{index}.mcp_server_name: '{name}' is none of `mcp_servers`")
        if name in seen:
            raise invalid(f"tools.{index}.mcp_server_name: '{name}' has more than one toolset")
        seen.add(name)


def requested_servers(
    servers: Sequence[McpServerBody] | None, tools: Sequence[AnyTool] | None
) -> tuple[RequestedServer, ...]:
    """Return the servers as the engine is told of them."""
    toolsets = {toolset.mcp_server_name: toolset for _, toolset in _toolsets(tools)}
    return tuple(_requested(server, toolsets) for server in servers or ())


def _toolsets(tools: Sequence[AnyTool] | None) -> Iterator[tuple[int, McpToolset]]:
    for index, tool in enumerate(tools or ()):
        if isinstance(tool, McpToolset):
            yield index, tool


def _requested(server: McpServerBody, toolsets: Mapping[str, McpToolset]) -> RequestedServer:
    enabled, exceptions = True, list[str]()
    older = server.tool_configuration
    if toolset := toolsets.get(server.name):
        enabled, exceptions = toolset.enabled, toolset.exceptions
    elif older and older.allowed_tools is not None and older.enabled is not False:
        enabled, exceptions = False, older.allowed_tools
    elif older:
        enabled = older.enabled is not False
    return RequestedServer(
        name=server.name,
        url=server.url,
        token=server.authorization_token,
        enabled=enabled,
        exceptions=tuple(exceptions),
    )
