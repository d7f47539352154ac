"""The messages that a Chat request may hold."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, Tag

from gateway.dialects.validation import Wire, by_type, tag


def _as_parts(value: Any) -> Any:
    """Read a plain string as one text part, so that the rest sees one form."""
    if isinstance(value, str):
        return [{"type": "text", "text": value}]
    if not isinstance(value, list):
        raise ValueError("Input should be a string or a list of content parts")
    return value


def _as_image_url(value: Any) -> Any:
    return {"url": value} if isinstance(value, str) else value


def _refuse(value: Any) -> Any:
    if value is not None:
        raise ValueError("cannot be given back to a model here")
    return value


class ChatTextPart(Wire):
    """Text."""

    type: Literal["text"]
    text: str


class ImageUrl(Wire):
    """Where an image is: an http, https or `data:` URL. `detail` has no effect."""

    url: Annotated[str, Field(min_length=1)]


class ChatImagePart(Wire):
    """An image, in what a user or a tool says."""

    type: Literal["image_url"]
    image_url: Annotated[
        ImageUrl, BeforeValidator(_as_image_url, json_schema_input_type=ImageUrl | str)
    ]


class ChatRefusalPart(Wire):
    """What an assistant said instead of an answer."""

    type: Literal["refusal"]
    refusal: str


_Text = Annotated[ChatTextPart, Tag(tag("part", "text"))]
_Image = Annotated[ChatImagePart, Tag(tag("part", "image_url"))]
_Refusal = Annotated[ChatRefusalPart, Tag(tag("part", "refusal"))]

_OnlyText = Annotated[_Text, by_type("part", "text")]
_Shown = Annotated[_Text | _Image, by_type("part", "text")]
_Said = Annotated[_Text | _Refusal, by_type("part", "text")]

TextParts = Annotated[
    list[_OnlyText],
    Field(fail_fast=True),
    BeforeValidator(_as_parts, json_schema_input_type=str | list[_OnlyText]),
]
ShownParts = Annotated[
    list[_Shown],
    Field(fail_fast=True),
    BeforeValidator(_as_parts, json_schema_input_type=str | list[_Shown]),
]
SaidParts = Annotated[
    list[_Said],
    Field(fail_fast=True),
    BeforeValidator(_as_parts, json_schema_input_type=str | list[_Said]),
]
Never = Annotated[Any, BeforeValidator(_refuse, json_schema_input_type=None)]


class SystemMessage(Wire):
    """What the model is told; it may stand anywhere in the conversation."""

    role: Literal["system", "developer"]
    content: TextParts


class UserMessage(Wire):
    """What the user says."""

    role: Literal["user"]
    content: ShownParts


class CalledFunction(Wire):
    """Which function was called, and with what: JSON text."""

    name: Annotated[str, Field(min_length=1)]
    arguments: str


class ChatToolCall(Wire):
    """A call that the assistant made."""

    id: Annotated[str, Field(min_length=1)]
    type: Literal["function"] = "function"
    function: CalledFunction


class AssistantMessage(Wire):
    """What the assistant answered. Its reasoning is given back to the model."""

    role: Literal["assistant"]
    content: SaidParts | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    """The same as `reasoning_content`, which wins."""
    tool_calls: Annotated[list[ChatToolCall], Field(fail_fast=True)] | None = None
    function_call: Never = None
    audio: Never = None


class ToolMessage(Wire):
    """What a call of the assistant message before came to."""

    role: Literal["tool"]
    tool_call_id: Annotated[str, Field(min_length=1)]
    content: ShownParts


ChatMessage = Annotated[
    Annotated[SystemMessage, Tag(tag("role", "system"))]
    | Annotated[SystemMessage, Tag(tag("role", "developer"))]
    | Annotated[UserMessage, Tag(tag("role", "user"))]
    | Annotated[AssistantMessage, Tag(tag("role", "assistant"))]
    | Annotated[ToolMessage, Tag(tag("role", "tool"))],
    by_type("role", "user", field="role"),
]
