"""Tools and the choice among them, in the Responses API's flat shape and in Chat's nested one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from gateway.dialects.connectors import MAX_SERVERS
from gateway.dialects.functions import Function, function_tool
from gateway.dialects.responses.connectors import ResponsesMcpTool
from gateway.dialects.validation import Wire, invalid_at, tag
from inference.request import RequestedServer, Tool, ToolChoice, ToolMode


class ResponsesTool(Function):
    """A function that the caller runs."""

    type: Literal["function"]


class ResponsesNestedTool(Wire):
    """The same in Chat's nested shape."""

    type: Literal["function"]
    function: Function


class ResponsesHostedTool(Wire):
    """A tool of any other kind, which nobody here can run. It is skipped."""

    type: Annotated[str, Field(json_schema_extra={"not": {"enum": ["function", "mcp"]}})]


def _flat(value: Any) -> Any:
    """Read Chat's nested shape as the flat one."""
    match value:
        case {"type": "function", "function": dict(function)}:
            return {**function, "type": "function"}
    return value


def _kind(value: Any) -> str:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    if not isinstance(kind, str):
        return tag("tool", "function")
    return tag("tool", kind if kind in ("function", "mcp") else "hosted")


AnyTool = Annotated[
    Annotated[
        ResponsesTool,
        BeforeValidator(_flat, json_schema_input_type=ResponsesTool | ResponsesNestedTool),
        Tag(tag("tool", "function")),
    ]
    | Annotated[ResponsesMcpTool, Tag(tag("tool", "mcp"))]
    | Annotated[ResponsesHostedTool, Tag(tag("tool", "hosted"))],
    Discriminator(_kind),
]
Tools = Annotated[list[AnyTool], Field(fail_fast=True)]


class ResponsesNamedTool(Wire):
    """A function, by its name."""

    type: Literal["function"]
    name: str


class ResponsesToolName(Wire):
    """A name alone."""

    name: str


class ResponsesNestedName(Wire):
    """A function by its name, in Chat's nested shape."""

    type: Literal["function"]
    function: ResponsesToolName


_Named = Annotated[
    ResponsesNamedTool,
    BeforeValidator(_flat, json_schema_input_type=ResponsesNamedTool | ResponsesNestedName),
]


class ResponsesMcpChoice(Wire):
    """A tool of an MCP server, the caller's or the operator's."""

    type: Literal["mcp"]
    server_label: str
    name: str


class ResponsesAllowedTools(Wire):
    """The tools that may be called in this turn, out of all that are told."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: list[_Named]


ChoiceMode = Literal["auto", "none", "required"]


def _choice_shape(value: Any) -> str:
    if not isinstance(value, dict):
        return tag("choice", "mode")
    kind = value.get("type")
    return tag("choice", kind if isinstance(kind, str) else "function")


ToolChoiceBody = Annotated[
    Annotated[ChoiceMode, Tag(tag("choice", "mode"))]
    | Annotated[_Named, Tag(tag("choice", "function"))]
    | Annotated[ResponsesMcpChoice, Tag(tag("choice", "mcp"))]
    | Annotated[ResponsesAllowedTools, Tag(tag("choice", "allowed_tools"))],
    Discriminator(_choice_shape),
]
Choice = ChoiceMode | ResponsesNamedTool | ResponsesMcpChoice | ResponsesAllowedTools


def functions(tools: Sequence[AnyTool] | None) -> Iterator[ResponsesTool]:
    """Yield the tools that the model may call."""
    for tool in tools or ():
        if isinstance(tool, ResponsesTool):
            yield tool


def skipped_tools(tools: Sequence[AnyTool] | None) -> Iterator[str]:
    """Yield the paths of the tools that nobody here can run."""
    for index, tool in enumerate(tools or ()):
        if isinstance(tool, ResponsesHostedTool):
            yield f"tools[{index}]"


def mcp_servers(tools: Sequence[AnyTool] | None) -> Iterator[tuple[str, ResponsesMcpTool]]:
    """Yield the MCP servers that the request brings along, each with its path."""
    for index, tool in enumerate(tools or ()):
        if isinstance(tool, ResponsesMcpTool):
            yield f"tools[{index}]", tool


def check_tools(tools: Sequence[AnyTool] | None, *, connectors: bool) -> None:
    """Raise INVALID_REQUEST unless names are unique.

    Without `connectors` requests may bring no MCP servers along.
    """
    names: set[str] = set()
    for index, tool in enumerate(tools or ()):
        if not isinstance(tool, ResponsesTool):
            continue
        if tool.name in names:
            raise invalid_at(f"tools[{index}].name", f"Tool names must be unique: '{tool.name}'")
        names.add(tool.name)
    labels: set[str] = set()
    for path, server in mcp_servers(tools):
        if not connectors:
            raise invalid_at(path, "MCP servers that requests bring along are not used here")
        if len(labels) == MAX_SERVERS:
            raise invalid_at(path, f"more than {MAX_SERVERS} MCP servers")
        label = server.server_label
        if label in labels:
            raise invalid_at(f"{path}.server_label", f"labels must be unique: '{label}'")
        labels.add(label)


def check_choice(
    tools: Sequence[AnyTool] | None, choice: Choice | None, *, server_tools: bool
) -> None:
    """Raise INVALID_REQUEST unless the choice is among the tools.

    With `server_tools` there are others, of which only the model's engine knows.
    """
    if server_tools and not isinstance(choice, ResponsesAllowedTools):
        return
    names = {tool.name for tool in functions(tools)}
    required = choice == "required" or getattr(choice, "mode", None) == "required"
    if required and not names:
        raise invalid_at("tool_choice", "a tool can be required only when `tools` are given")
    for name in _chosen(choice):
        if name not in names:
            raise invalid_at("tool_choice", f"Tool '{name}' not found in provided tools")


def _chosen(choice: Choice | None) -> list[str]:
    match choice:
        case ResponsesNamedTool(name=name):
            return [name]
        case ResponsesMcpChoice(server_label=label, name=name):
            return [f"{label}__{name}"]
        case ResponsesAllowedTools(tools=tools):
            return [tool.name for tool in tools]
    return []


def canonical_tools(tools: Sequence[AnyTool] | None, choice: Choice | None) -> tuple[Tool, ...]:
    """Return the tools that this turn may call."""
    allowed = set(_chosen(choice)) if isinstance(choice, ResponsesAllowedTools) else None
    return tuple(
        function_tool(tool) for tool in functions(tools) if allowed is None or tool.name in allowed
    )


def canonical_choice(choice: Choice | None, *, parallel: bool) -> ToolChoice:
    """Return which of them the answer may, must not or must call."""
    match choice:
        case "none":
            return ToolChoice(mode=ToolMode.NONE, parallel=parallel)
        case "required" | ResponsesAllowedTools(mode="required"):
            return ToolChoice(mode=ToolMode.ANY, parallel=parallel)
        case ResponsesNamedTool() | ResponsesMcpChoice():
            (name,) = _chosen(choice)
            return ToolChoice(mode=ToolMode.NAMED, name=name, parallel=parallel)
    return ToolChoice(parallel=parallel)


def requested_servers(
    tools: Sequence[AnyTool] | None, choice: Choice | None
) -> tuple[RequestedServer, ...]:
    """Return the servers whose tools this turn may call."""
    if isinstance(choice, ResponsesAllowedTools):
        # It names functions only, and nothing else may be called.
        return ()
    return tuple(server.requested(path) for path, server in mcp_servers(tools))
