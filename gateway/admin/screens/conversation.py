"""What was said, as turns of plain text that a person can read, whichever dialect it was said in.

Pure. A body is a caller's, and may be anything that its dialect once let in: what is not known here
is shown as JSON, never left out and never an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from gateway.dialects.anthropic.raw_message import as_message
from inference.fold import KeptPart, RawPart
from inference.request import (
    ServerToolCallPart,
    ServerToolResultPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)

JsonObject = dict[str, Any]

SHOWN_CHARS = 20_000
"""Of one piece; the raw JSON has all of it."""

# Fields of the three dialects that are shown as turns or tools, and not as settings.
_SAID = {"messages", "system", "input", "instructions", "tools", "functions"}
_TEXT = {"text", "input_text", "output_text", "summary_text", "reasoning_text"}
_CALLS = {"tool_use", "server_tool_use", "mcp_tool_use"}
_RESULTS = {"tool_result", "mcp_tool_result"}


class Piece(NamedTuple):
    """A stretch of one turn. `kind` is text, thinking, call, result, image or other."""

    kind: str
    text: str
    label: str = ""


class Turn(NamedTuple):
    """What one side said."""

    role: str
    pieces: list[Piece]


class OfferedTool(NamedTuple):
    """A tool that the request offered. `schema` is JSON, empty where it has none."""

    name: str
    description: str
    schema: str


def turns_of(body: JsonObject) -> list[Turn]:
    """Return the prompt of a request of any dialect."""
    first = [body.get(name) for name in ("system", "instructions")]
    turns = [Turn("system", _pieces(said)) for said in first if said]
    said = body.get("messages", body.get("input"))
    for message in said if isinstance(said, list) else [said]:
        if message is not None:
            turns.append(_turn(message))
    return [turn for turn in turns if turn.pieces]


def tools_of(body: JsonObject) -> list[OfferedTool]:
    """Return the tools that a request of any dialect offered."""
    tools = body.get("tools") or body.get("functions")
    return [_tool(tool) for tool in tools] if isinstance(tools, list) else []


def settings_of(body: JsonObject) -> str:
    """Return the rest of a request's fields as JSON."""
    return pretty({name: value for name, value in body.items() if name not in _SAID})


def answer_pieces(parts: Sequence[KeptPart]) -> list[Piece]:
    """Return an answer as the trail keeps it."""
    return [_cut(piece) for part in parts for piece in _answered(part)]


def pretty(value: Any) -> str:
    """Return any JSON value, indented. What is JSON already, as text, is indented too."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return str(value)
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _turn(message: Any) -> Turn:
    match message:
        case {"type": "function_call" | "function_call_output" | "reasoning" as kind}:
            return Turn("tool" if kind == "function_call_output" else "assistant", _pieces(message))
        case {"role": str(role), **more}:
            thought = more.get("reasoning_content") or more.get("reasoning")
            pieces = [Piece("thinking", thought)] if isinstance(thought, str) and thought else []
            if role == "tool":
                return Turn(role, [Piece("result", flat_text(more.get("content")))])
            return Turn(
                role, [*pieces, *_pieces(more.get("content")), *_chat_calls(more.get("tool_calls"))]
            )
        case _:
            return Turn("user", _pieces(message))


def _chat_calls(calls: Any) -> list[Piece]:
    return [_chat_call(call) for call in calls] if isinstance(calls, list) else []


def _chat_call(call: Any) -> Piece:
    match call:
        case {"function": {"name": str(name), "arguments": arguments}}:
            return _cut(Piece("call", pretty(arguments), name))
        case _:
            return _other(call)


def _pieces(content: Any) -> list[Piece]:
    blocks = content if isinstance(content, list) else [content]
    return [_cut(_piece(block)) for block in blocks if block not in (None, "")]


def _piece(block: Any) -> Piece:
    match block:
        case str(text):
            return Piece("text", text)
        case {"type": str(kind), "text": str(text)} if kind in _TEXT:
            return Piece("text", text)
        case {"type": "refusal", "refusal": str(text)}:
            return Piece("text", text, "refusal")
        case {"type": "thinking", "thinking": str(text)}:
            return Piece("thinking", text)
        case {"type": "reasoning"}:
            return Piece("thinking", flat_text(block.get("content") or block.get("summary")))
        case {"type": "image" | "image_url" | "input_image"}:
            return Piece("image", _image(block))
        case _:
            return _of_tool(block) or _other(block)


def _of_tool(block: Any) -> Piece | None:
    """Return a block that is a tool's call or its result; None for any other."""
    match block:
        case {"type": str(kind), "name": str(name)} if kind in _CALLS:
            server = block.get("server_name")
            label = f"{server} / {name}" if isinstance(server, str) else name
            return Piece("call", pretty(block.get("input", {})), label)
        case {"type": "function_call", "name": str(name)}:
            return Piece("call", pretty(block.get("arguments", {})), name)
        case {"type": str(kind)} if kind in _RESULTS:
            label = "error" if block.get("is_error") else ""
            return Piece("result", flat_text(block.get("content")), label)
        case {"type": "function_call_output"}:
            return Piece("result", flat_text(block.get("output")))
        case _:
            return None


def _other(value: Any) -> Piece:
    kind = value.get("type") if isinstance(value, dict) else None
    return Piece("other", pretty(value), kind if isinstance(kind, str) else "")


def flat_text(content: Any) -> str:
    """Return the text of a tool's result or the like: a string, or blocks one after another."""
    if content is None:
        return ""
    return "\n".join(piece.text for piece in _pieces(content))


def _image(block: JsonObject) -> str:
    """Say what an image is: where it comes from, or what kind it is and how long its data."""
    match block:
        case {"source": {"url": str(url)}} | {"image_url": {"url": str(url)} | str(url)}:
            head, comma, data = url.partition(",")
            if url.startswith("data:") and comma:
                return f"{head}, {len(data):,} characters"
            return url
        case {"source": {"media_type": str(kind), "data": str(data)}}:
            return f"{kind}, {len(data):,} characters"
        case _:
            return pretty(block)


def _tool(tool: Any) -> OfferedTool:
    match tool:
        case {"function": dict(inner)}:
            return _tool(inner)
        case {"name": str(name)} | {"type": str(name)}:
            schema = tool.get("input_schema") or tool.get("parameters")
            description = tool.get("description")
            return OfferedTool(
                name,
                description if isinstance(description, str) else "",
                pretty(schema) if schema else "",
            )
        case _:
            return OfferedTool("?", "", pretty(tool))


def _answered(part: KeptPart) -> Iterator[Piece]:
    match part:
        case TextPart(text=text):
            yield Piece("text", text)
        case ThinkingPart(text=text):
            yield Piece("thinking", text)
        case ToolCallPart(name=name, arguments=arguments):
            yield Piece("call", pretty(arguments), name)
        case ServerToolCallPart(server=server, name=name, arguments=arguments):
            yield Piece("call", pretty(arguments), f"{server} / {name}")
        case ServerToolResultPart(text=text, is_error=is_error):
            yield Piece("result", text, "error" if is_error else "")
        case RawPart(data=data):
            yield from _pieces(as_message(data).get("content"))


def _cut(piece: Piece) -> Piece:
    more = len(piece.text) - SHOWN_CHARS
    if more <= 0:
        return piece
    return piece._replace(text=f"{piece.text[:SHOWN_CHARS]}\n… ({more:,} characters more)")
