"""Tools and the choice among them: Anthropic's shapes and OpenAI's, mixed as callers like."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from gateway.dialects.anthropic.blocks import CacheControl
from gateway.dialects.functions import ArgumentsSchema, Function, ToolName
from gateway.dialects.validation import Wire, invalid, tag


class ClientTool(Wire):
    """A tool in Anthropic's shape, which the caller runs.

    `defer_loading`, `eager_input_streaming` and `allowed_callers` have no effect: every tool is
    told to the model, and arguments always stream as they are generated.
    """

    type: Literal["custom"] | None = None
    name: ToolName
    description: str | None = None
    input_schema: ArgumentsSchema
    strict: bool | None = None
    input_examples: list[dict[str, Any]] | None = None
    cache_control: CacheControl | None = None


class FunctionTool(Wire):
    """A tool in OpenAI's shape."""

    type: Literal["function"] = "function"
    function: Function
    cache_control: CacheControl | None = None

    @property
    def name(self) -> str:
        """The function's name."""
        return self.function.name


class McpToolConfig(Wire):
    """Whether a tool is offered. `defer_loading` has no effect."""

    enabled: bool | None = None


class McpToolset(Wire):
    """Which tools of one of the request's MCP servers are offered."""

    type: Literal["mcp_toolset"]
    mcp_server_name: str
    default_config: McpToolConfig | None = None
    configs: dict[str, McpToolConfig] | None = None
    cache_control: CacheControl | None = None

    @property
    def enabled(self) -> bool:
        """Whether tools are offered that `configs` does not name."""
        return self.default_config is None or self.default_config.enabled is not False

    @property
    def exceptions(self) -> list[str]:
        """The tools that it is the other way round for."""
        default = self.enabled
        return [
            name
            for name, config in (self.configs or {}).items()
            if (default if config.enabled is None else config.enabled) != default
        ]


class ServerTool(Wire):
    """A tool that Anthropic would run: it has a type and no schema. It is skipped."""

    model_config = ConfigDict(json_schema_extra={"not": {"required": ["input_schema"]}})

    type: Annotated[
        str, Field(json_schema_extra={"not": {"enum": ["custom", "function", "mcp_toolset"]}})
    ]
    cache_control: CacheControl | None = None


def _shape(value: Any) -> str:
    if not isinstance(value, dict):
        return tag("tool", "client")
    kind = value.get("type")
    if kind == "function" or (kind is None and "function" in value):
        return tag("tool", "function")
    if kind == "mcp_toolset":
        return tag("tool", "toolset")
    if isinstance(kind, str) and kind != "custom" and "input_schema" not in value:
        return tag("tool", "server")
    return tag("tool", "client")


AnyTool = Annotated[
    Annotated[ClientTool, Tag(tag("tool", "client"))]
    | Annotated[FunctionTool, Tag(tag("tool", "function"))]
    | Annotated[McpToolset, Tag(tag("tool", "toolset"))]
    | Annotated[ServerTool, Tag(tag("tool", "server"))],
    Discriminator(_shape),
]
Tools = Annotated[list[AnyTool], Field(fail_fast=True)]


class ToolChoiceBody(Wire):
    """Which tools the answer may call. `required` is OpenAI's word for `any`."""

    type: Literal["auto", "none", "any", "required", "tool"]
    name: str | None = None
    """The tool that must be called, where `type` is `tool`."""
    disable_parallel_tool_use: bool | None = None

    @model_validator(mode="after")
    def _named(self) -> ToolChoiceBody:
        if self.type == "tool" and not self.name:
            raise ValueError("the choice of a `tool` needs its `name`")
        return self


class FunctionName(Wire):
    """The inner half of OpenAI's forced function."""

    name: str


class FunctionChoice(Wire):
    """OpenAI's way to name the tool that must be called."""

    type: Literal["function"]
    function: FunctionName


ChoiceInput = Literal["auto", "none", "any", "required"] | ToolChoiceBody | FunctionChoice


def _as_choice(value: Any) -> Any:
    """Read the short form and OpenAI's forced function as Anthropic's choice."""
    choice = {"type": value} if isinstance(value, str) else value
    match choice:
        case {"type": "function", "function": {"name": str(name)}}:
            return {**choice, "type": "tool", "name": name}
    return choice


AnyToolChoice = Annotated[
    ToolChoiceBody, BeforeValidator(_as_choice, json_schema_input_type=ChoiceInput)
]


def callable_tools(tools: Sequence[AnyTool] | None) -> Iterator[ClientTool | FunctionTool]:
    """Yield the tools that the model may call."""
    for tool in tools or ():
        if isinstance(tool, ClientTool | FunctionTool):
            yield tool


def skipped_tools(tools: Sequence[AnyTool] | None, *, connectors: bool) -> Iterator[str]:
    """Yield the paths of the tools that nobody here can run; toolsets are run by `connectors`."""
    for index, tool in enumerate(tools or ()):
        if isinstance(tool, ServerTool) or (isinstance(tool, McpToolset) and not connectors):
            yield f"tools.{index}"


def check_tools(tools: Sequence[AnyTool] | None) -> frozenset[str]:
    """Return the tools' names. Raises INVALID_REQUEST unless each has its own."""
    names: set[str] = set()
    for index, tool in enumerate(tools or ()):
        if not isinstance(tool, ClientTool | FunctionTool):
            continue
        if tool.name in names:
            place = "function.name" if isinstance(tool, FunctionTool) else "name"
            raise invalid(f"tools.{index}.{place}: Tool names must be unique: '{tool.name}'")
        names.add(tool.name)
    return frozenset(names)


def check_choice(tools: Sequence[AnyTool] | None, choice: ToolChoiceBody) -> None:
    """Raise INVALID_REQUEST for a choice among other tools than these."""
    names = {tool.name for tool in callable_tools(tools)}
    if choice.type in ("any", "required") and not names:
        raise invalid("tool_choice: a tool can be required only when `tools` are given")
    if choice.type == "tool" and choice.name not in names:
        raise invalid(f"tool_choice.name: Tool '{choice.name}' not found in provided tools")
