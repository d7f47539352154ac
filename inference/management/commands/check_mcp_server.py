"""`check_mcp_server NAME`: does this machine reach the server, and which tools has it?"""

from __future__ import annotations

import asyncio
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from inference.catalogue import load_mcp_servers
from inference.mcp.check import list_tools
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
            tools = asyncio.run(list_tools(entry))
        except ServerError as error:
            raise CommandError(f"{server} cannot be used: {error}") from None
        for tool in tools.offered:
            self.stdout.write(f"{tool.name:24} {' '.join(tool.description.split())}".rstrip())
        if tools.withheld:
            self.stderr.write(f"Not in allowed_tools: {', '.join(tools.withheld)}.")
        for name in tools.missing:
            self.stderr.write(f"It has no tool {name!r}, which allowed_tools names.")
