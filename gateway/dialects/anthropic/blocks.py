"""The content blocks that a request may hold."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, Tag

from gateway.dialects.sampling import NON_EMPTY
from gateway.dialects.validation import Wire, by_type, tag


def _non_empty_text(value: str) -> str:
    if not value:
        raise ValueError("text content blocks must be non-empty")
    return value


def _as_blocks(value: Any) -> Any:
    """Read a plain string as one text block, so that the rest sees one form."""
    if isinstance(value, str):
        return [{"type": "text", "text": value}] if value else []
    if not isinstance(value, list):
        raise ValueError("Input should be a string or a list of content blocks")
    return value


class CacheControl(Wire):
    """A cache breakpoint. How long the cache holds is the engine's matter, whatever `ttl` says."""

    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] | None = None


class _Markable(Wire):
    cache_control: CacheControl | None = None


class TextBlock(_Markable):
    """A text block. `citations` on it have no effect."""

    type: Literal["text"]
    text: Annotated[str, AfterValidator(_non_empty_text), Field(json_schema_extra=NON_EMPTY)]


class Base64Source(Wire):
    """An image inside the request."""

    type: Literal["base64"]
    media_type: Literal["image/jpeg", "image/png", "image/gif", "image/webp"]
    data: Annotated[str, Field(min_length=1)]


class UrlSource(Wire):
    """An image that is fetched."""

    type: Literal["url"]
    url: Annotated[str, Field(min_length=1)]


class ImageBlock(_Markable):
    """An image, in a user turn or in a tool's result."""

    type: Literal["image"]
    source: Annotated[
        Annotated[Base64Source, Tag(tag("source", "base64"))]
        | Annotated[UrlSource, Tag(tag("source", "url"))],
        by_type("source", "base64"),
    ]


class ToolUseBlock(_Markable):
    """A call that the assistant made."""

    type: Literal["tool_use"]
    id: Annotated[str, Field(min_length=1)]
    name: Annotated[str, Field(min_length=1)]
    input: dict[str, Any]


class McpToolUseBlock(_Markable):
    """A call that the server ran itself, or that it was left with."""

    type: Literal["mcp_tool_use"]
    id: Annotated[str, Field(min_length=1)]
    name: Annotated[str, Field(min_length=1)]
    server_name: Annotated[str, Field(min_length=1)]
    input: dict[str, Any]


class ToolReferenceBlock(_Markable):
    """A tool that a search among tools has found; it stands in a tool's result."""

    type: Literal["tool_reference"]
    tool_name: Annotated[str, Field(min_length=1)]


class ThinkingBlock(Wire):
    """The reasoning of an assistant turn. Its `signature` is not looked at."""

    type: Literal["thinking"]
    thinking: str


class RedactedThinkingBlock(Wire):
    """Reasoning that only whoever wrote it can read."""

    type: Literal["redacted_thinking"]


SystemBlock = Annotated[Annotated[TextBlock, Tag(tag("block", "text"))], by_type("block", "text")]
TextBlocks = Annotated[
    list[SystemBlock],
    Field(fail_fast=True),
    BeforeValidator(_as_blocks, json_schema_input_type=str | list[SystemBlock]),
]

ResultBlock = Annotated[
    Annotated[TextBlock, Tag(tag("block", "text"))]
    | Annotated[ImageBlock, Tag(tag("block", "image"))]
    | Annotated[ToolReferenceBlock, Tag(tag("block", "tool_reference"))],
    by_type("block", "text"),
]


ResultBlocks = Annotated[
    list[ResultBlock],
    Field(fail_fast=True),
    BeforeValidator(_as_blocks, json_schema_input_type=str | list[ResultBlock]),
]


class ToolResultBlock(_Markable):
    """What a call came to. A tool may have nothing to say."""

    type: Literal["tool_result"]
    tool_use_id: Annotated[str, Field(min_length=1)]
    content: ResultBlocks | None = None
    is_error: bool | None = None


class McpToolResultBlock(_Markable):
    """What a call that the server ran came to."""

    type: Literal["mcp_tool_result"]
    tool_use_id: Annotated[str, Field(min_length=1)]
    content: TextBlocks | None = None
    is_error: bool | None = None


MessageBlock = Annotated[
    Annotated[TextBlock, Tag(tag("block", "text"))]
    | Annotated[ImageBlock, Tag(tag("block", "image"))]
    | Annotated[ToolUseBlock, Tag(tag("block", "tool_use"))]
    | Annotated[ToolResultBlock, Tag(tag("block", "tool_result"))]
    | Annotated[McpToolUseBlock, Tag(tag("block", "mcp_tool_use"))]
    | Annotated[McpToolResultBlock, Tag(tag("block", "mcp_tool_result"))]
    | Annotated[ThinkingBlock, Tag(tag("block", "thinking"))]
    | Annotated[RedactedThinkingBlock, Tag(tag("block", "redacted_thinking"))],
    by_type("block", "text"),
]

MessageBlocks = Annotated[
    list[MessageBlock],
    Field(fail_fast=True),
    BeforeValidator(_as_blocks, json_schema_input_type=str | list[MessageBlock]),
]


class InputMessage(Wire):
    """One turn; a `system` turn may stand anywhere in the conversation."""

    role: Literal["user", "assistant", "system"]
    content: MessageBlocks
