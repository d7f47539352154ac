"""Which requests are offered tools that the server runs. Pure, and without the SDK: the gateway
must know it too, since what these tools say is part of a prompt."""

from __future__ import annotations

from inference.catalogue import ModelEntry
from inference.request import GenerationRequest, ToolMode


def offers_tools(entry: ModelEntry, request: GenerationRequest) -> bool:
    """Say whether a request is offered any tools of servers."""
    # The service's own requests, such as the canary, are about the model alone.
    if request.owner is None or entry.tool_recursion_limit == 0 or request.raw is not None:
        return False
    return bool(request.servers) or offers_own(entry, request)


def offers_own(entry: ModelEntry, request: GenerationRequest) -> bool:
    """Say whether it is offered those of the operator's servers."""
    return bool(entry.mcp_servers) and (entry.offer_mcp_tools or demands_other_tool(request))


def demands_other_tool(request: GenerationRequest) -> bool:
    """Say whether a request demands a call of a tool that is not its own."""
    choice = request.tool_choice
    own = {tool.name for tool in request.tools}
    return choice.mode is ToolMode.NAMED and choice.name not in own
