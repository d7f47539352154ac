"""Tools for models whose chat template has none: described and spoken of in plain text.

The text is in the format of the model's tool parser, so that the parser reads the answer as it
reads that of a model which was trained on the format.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from inference.errors import ErrorCode, TandemError
from inference.request import (
    GenerationRequest,
    Message,
    Part,
    Role,
    TextPart,
    Tool,
    ToolCallPart,
    ToolMode,
    ToolResultPart,
)


class ToolFormat(NamedTuple):
    """What stands around the tools, a call and a result, each of which is JSON or plain text."""

    before_tools: str
    after_tools: str
    before_call: str
    after_call: str
    before_result: str
    after_result: str


FORMATS = {
    "hermes": ToolFormat(
        before_tools="# Tools\n\n"
        "You may call one or more functions to assist with the user query.\n\n"
        "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n",
        after_tools="\n</tools>\n\n"
        "For each function call, return a json object with function name and arguments within "
        "<tool_call></tool_call> XML tags:\n<tool_call>\n"
        '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>\n',
        before_call="<tool_call>\n",
        after_call="\n</tool_call>",
        before_result="<tool_response>\n",
        after_result="\n</tool_response>",
    ),
}
"""By the name of vLLM's tool parser."""


def require_format(model: str, tool_parser: str) -> ToolFormat:
    """Return the parser's format. Raises `TandemError` (ENGINE_FAILED) if none is known."""
    if (tool_format := FORMATS.get(tool_parser)) is None:
        raise TandemError(
            ErrorCode.ENGINE_FAILED,
            f"{model} has tools described for it, which the tool parser '{tool_parser}' has no "
            f"format for; those with one: {', '.join(FORMATS)}",
        )
    return tool_format


def describe_tools(request: GenerationRequest, tool_format: ToolFormat) -> GenerationRequest:
    """Return the request with its tools, calls and results said in text.

    `tools` and `tool_choice` stay as they are: they still say what the answer may be.
    """
    messages = [_told(message, tool_format) for message in request.messages]
    if request.tools and request.tool_choice.mode is not ToolMode.NONE:
        parts: tuple[Part, ...] = (TextPart(_description(request.tools, tool_format)),)
        if messages[0].role is Role.SYSTEM:
            # The caller's own words come last: they change more often, and what is behind a
            # change is not found in the cache.
            parts += messages.pop(0).parts
        messages.insert(0, Message(role=Role.SYSTEM, parts=parts))
    return msgspec.structs.replace(request, messages=tuple(messages))


def result_text(result: ToolResultPart) -> str:
    """Return the text of what a call came to; a failed one says so."""
    text = "\n".join(part.text for part in result.parts if isinstance(part, TextPart))
    return f"Error: {text}" if result.is_error else text


def _description(tools: Sequence[Tool], tool_format: ToolFormat) -> str:
    lines = "\n".join(_json({"type": "function", "function": _function(tool)}) for tool in tools)
    return f"{tool_format.before_tools}{lines}{tool_format.after_tools}"


def _function(tool: Tool) -> dict[str, Any]:
    described = {"description": tool.description} if tool.description else {}
    return {"name": tool.name, **described, "parameters": tool.schema}


def _told(message: Message, tool_format: ToolFormat) -> Message:
    parts = tuple(chain.from_iterable(_told_part(part, tool_format) for part in message.parts))
    return msgspec.structs.replace(message, parts=parts)


def _told_part(part: Part, tool_format: ToolFormat) -> Iterator[Part]:
    match part:
        case ToolCallPart():
            call = {"name": part.name, "arguments": msgspec.Raw(part.arguments.encode())}
            yield TextPart(f"{tool_format.before_call}{_json(call)}{tool_format.after_call}")
        case ToolResultPart():
            text = f"{tool_format.before_result}{result_text(part)}{tool_format.after_result}"
            yield TextPart(text)
            yield from (shown for shown in part.parts if not isinstance(shown, TextPart))
        case _:
            yield part


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
