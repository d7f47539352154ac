"""Tools and the choice among them, as OpenAI spells them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from gateway.dialects.functions import Function, function_tool
from gateway.dialects.validation import Wire, by_type, invalid_at, tag
from inference.request import Tool, ToolChoice, ToolMode


class ChatTool(Wire):
    """A function that the caller runs."""

    type: Literal["function"] = "function"
    function: Function


ChatTools = Annotated[
    list[Annotated[Annotated[ChatTool, Tag(tag("tool", "function"))], by_type("tool", "function")]],
    Field(min_length=1, fail_fast=True),
]


class ChosenName(Wire):
    """A function by its name."""

    name: str


class NamedFunction(Wire):
    """A function that must be called, or may be."""

    type: Literal["function"]
    function: ChosenName


class AllowedTools(Wire):
    """The only functions that may be called, and whether one must be."""

    mode: Literal["auto", "required"]
    tools: Annotated[list[NamedFunction], Field(min_length=1)]


class AllowedToolsChoice(Wire):
    """A choice among some of the tools."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


ChoiceMode = Literal["none", "auto", "required"]


def _shape(value: Any) -> str:
    if not isinstance(value, dict):
        return tag("choice", "mode")
    kind = value.get("type")
    return tag("choice", kind if isinstance(kind, str) else "function")


ChatToolChoice = Annotated[
    Annotated[ChoiceMode, Tag(tag("choice", "mode"))]
    | Annotated[NamedFunction, Tag(tag("choice", "function"))]
    | Annotated[AllowedToolsChoice, Tag(tag("choice", "allowed_tools"))],
    Discriminator(_shape),
]

_MODES = {"none": ToolMode.NONE, "auto": ToolMode.AUTO, "required": ToolMode.ANY}


def check_tools(tools: Sequence[ChatTool]) -> None:
    """Raise INVALID_REQUEST unless the names are unique."""
    names: set[str] = set()
    for index, tool in enumerate(tools):
        if tool.function.name in names:
            path = f"tools[{index}].function.name"
            raise invalid_at(path, f"Tool names must be unique: '{tool.function.name}'")
        names.add(tool.function.name)


def check_choice(
    tools: Sequence[ChatTool], choice: ChatToolChoice | None, *, server_tools: bool
) -> None:
    """Raise INVALID_REQUEST unless the choice is among the tools.

    With `server_tools` there are others, of which only the model's engine knows.
    """
    names = {tool.function.name for tool in tools}
    match choice:
        case "required" | NamedFunction() if server_tools:
            pass
        case "required" if not names:
            raise invalid_at("tool_choice", "a tool can be required only when `tools` are given")
        case NamedFunction(function=function):
            _check_name(function.name, "tool_choice.function.name", names)
        case AllowedToolsChoice(allowed_tools=allowed):
            for index, named in enumerate(allowed.tools):
                path = f"tool_choice.allowed_tools.tools[{index}].function.name"
                _check_name(named.function.name, path, names)


def _check_name(name: str, path: str, names: set[str]) -> None:
    if name not in names:
        raise invalid_at(path, f"Tool '{name}' not found in provided tools")


def canonical_tools(
    tools: Sequence[ChatTool], choice: ChatToolChoice | None, *, parallel: bool
) -> tuple[tuple[Tool, ...], ToolChoice]:
    """Return the tools that the model is told of, and which of them it may or must call."""
    mode, name = ToolMode.AUTO, None
    allowed = {tool.function.name for tool in tools}
    match choice:
        case str():
            mode = _MODES[choice]
        case NamedFunction(function=function):
            mode, name = ToolMode.NAMED, function.name
        case AllowedToolsChoice(allowed_tools=some):
            mode = _MODES[some.mode]
            allowed = {tool.function.name for tool in some.tools}
    told = tuple(function_tool(tool.function) for tool in tools if tool.function.name in allowed)
    return told, ToolChoice(mode=mode, name=name, parallel=parallel)
