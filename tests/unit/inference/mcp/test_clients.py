"""Clients of servers that nobody has reason to trust."""

from __future__ import annotations

from mcp import Client
from mcp.server.lowlevel import Server
from mcp.types import CallToolResult, ListToolsResult, TextContent, Tool

from inference.mcp.clients import unchecked

# With a longer text, it takes longer to find that this does not match than anybody lives.
SCHEMA = {"type": "object", "properties": {"text": {"type": "string", "pattern": "^(a+)+$"}}}
TEXT = "a" * 16 + "!"


async def _list(_context: object, _parameters: object) -> ListToolsResult:
    tool = Tool(name="trap", input_schema={"type": "object"}, output_schema=SCHEMA)
    return ListToolsResult(tools=[tool])


async def _call(_context: object, _parameters: object) -> CallToolResult:
    return CallToolResult(
        content=[TextContent(type="text", text="here")], structured_content={"text": TEXT}
    )


async def test_a_result_is_not_held_against_a_strangers_patterns() -> None:
    server = Server("trap", on_list_tools=_list, on_call_tool=_call)
    async with Client(server) as client:
        await client.list_tools()
        result = await unchecked(client).call_tool("trap", {})
    assert result.structured_content == {"text": TEXT}
