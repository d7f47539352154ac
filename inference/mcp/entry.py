"""An MCP server of the catalogue as the rest of the code sees it."""

from __future__ import annotations

import msgspec


class McpServerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One enabled server. The fields mean what `inference.models.McpServer` says they mean."""

    name: str
    transport: str
    command: tuple[str, ...] = ()
    url: str = ""
    secrets: dict[str, str] = {}
    allowed_tools: tuple[str, ...] = ()
    timeout_s: float = 30
    max_output_bytes: int = 65_536

    def allows(self, tool: str) -> bool:
        """Say whether the operator lets models call that tool."""
        return not self.allowed_tools or tool in self.allowed_tools
