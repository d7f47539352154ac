"""`check_mcp_server NAME`: does this machine reach the server, and which tools has it?"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from inference.catalogue import load_mcp_servers
from inference.mcp.entry import McpServerEntry
from inference.mcp.names import ListedTool
from inference.mcp.pool import open_session
from inference.mcp.session import ServerError


class Command(BaseCommand):
    help = "Connect to an MCP server of the catalogue from this process and list its tools."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("server", help="name of an MCP server of the catalogue")

    def handle(self, *args: Any, server: str, **options: Any) -> None:
        entry = load_mcp_servers().get(server)
        if entry is None:
            raise CommandError(f"The catalogue has no MCP server named {server!r}.")
        try:
            tools = asyncio.run(_tools(entry))
        except ServerError as error:
            raise CommandError(f"{server} cannot be used: {error}") from None
        for tool in tools:
            self.stdout.write(f"{tool.name:24} {' '.join(tool.description.split())}".rstrip())
        missing = set(entry.allowed_tools) - {tool.name for tool in tools}
        for name in sorted(missing):
            self.stderr.write(f"It has no tool {name!r}, which allowed_tools names.")


async def _tools(entry: McpServerEntry) -> Sequence[ListedTool]:
    session = open_session(entry)
    try:
        return await session.tools()
    finally:
        await session.close()
