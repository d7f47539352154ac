"""The items that a request's `input` may hold."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, Tag, TypeAdapter, ValidationError

from gateway.dialects.responses.items import Item
from gateway.dialects.validation import Wire, bracketed, by_type, first_error, invalid_at, tag


class ResponsesText(Wire):
    """Text of anybody's."""

    type: Literal["input_text", "output_text", "text"]
    text: str


class ResponsesRefusal(Wire):
    """What an assistant said in place of an answer."""

    type: Literal["refusal"]
    refusal: str


class ResponsesImage(Wire):
    """An image in a user's message or in what a call came to. `detail` has no effect."""

    type: Literal["input_image"]
    image_url: Annotated[str, Field(min_length=1)]
    """A URL, or the image itself as a `data:` URL."""


def _as_parts(value: Any) -> Any:
    """Read a plain string as one part, so that the rest sees one form."""
    if isinstance(value, str):
        return [{"type": "input_text", "text": value}] if value else []
    if not isinstance(value, list):
        raise ValueError("Input should be a string or a list of content parts")
    return value


Part = Annotated[
    Annotated[ResponsesText, Tag(tag("part", "input_text"))]
    | Annotated[ResponsesText, Tag(tag("part", "output_text"))]
    | Annotated[ResponsesText, Tag(tag("part", "text"))]
    | Annotated[ResponsesRefusal, Tag(tag("part", "refusal"))]
    | Annotated[ResponsesImage, Tag(tag("part", "input_image"))],
    by_type("part", "input_text"),
]
Parts = Annotated[
    list[Part],
    Field(fail_fast=True),
    BeforeValidator(_as_parts, json_schema_input_type=str | list[Part]),
]


class ResponsesMessage(Wire):
    """One message. `developer` is another word for `system`."""

    type: Literal["message"] | None = None
    role: Literal["user", "assistant", "system", "developer"]
    content: Parts


class ResponsesCall(Wire):
    """A call that the assistant made."""

    type: Literal["function_call"]
    call_id: Annotated[str, Field(min_length=1)]
    name: Annotated[str, Field(min_length=1)]
    arguments: str


class ResponsesCallOutput(Wire):
    """What a call came to. A tool may have nothing to say."""

    type: Literal["function_call_output"]
    call_id: Annotated[str, Field(min_length=1)]
    output: Parts


class ResponsesMcpCall(Wire):
    """A call that the server ran, with what it came to."""

    type: Literal["mcp_call"]
    id: Annotated[str, Field(min_length=1)]
    server_label: Annotated[str, Field(min_length=1)]
    name: Annotated[str, Field(min_length=1)]
    arguments: str
    output: str | None = None
    error: Any = None
    """What a failed call came to: as it was told, or any text."""

    @property
    def error_text(self) -> str | None:
        """What went wrong, as text."""
        match self.error:
            case None | str():
                return self.error
            case {"content": [{"text": str(text)}]} | {"message": str(text)}:
                return text
        return json.dumps(self.error)


class ResponsesMcpList(Wire):
    """The tools that a server was found to have. They are looked up anew: it has no effect."""

    type: Literal["mcp_list_tools"]


class ResponsesReasoningText(Wire):
    """A piece of reasoning, or of its summary."""

    type: Literal["reasoning_text", "summary_text", "text"]
    text: str


class ResponsesReasoning(Wire):
    """The reasoning of an assistant's turn. `encrypted_content` is not looked at."""

    type: Literal["reasoning"]
    summary: list[ResponsesReasoningText] | None = None
    content: list[ResponsesReasoningText] | None = None

    @property
    def text(self) -> str:
        """The reasoning itself, or else its summary."""
        return "\n".join(part.text for part in self.content or self.summary or ())


class ResponsesItemReference(Wire):
    """An item of an earlier response, by its id."""

    type: Literal["item_reference"]
    id: Annotated[str, Field(min_length=1)]


InputItem = Annotated[
    Annotated[ResponsesMessage, Tag(tag("item", "message"))]
    | Annotated[ResponsesCall, Tag(tag("item", "function_call"))]
    | Annotated[ResponsesCallOutput, Tag(tag("item", "function_call_output"))]
    | Annotated[ResponsesMcpCall, Tag(tag("item", "mcp_call"))]
    | Annotated[ResponsesMcpList, Tag(tag("item", "mcp_list_tools"))]
    | Annotated[ResponsesReasoning, Tag(tag("item", "reasoning"))]
    | Annotated[ResponsesItemReference, Tag(tag("item", "item_reference"))],
    by_type("item", "message"),
]


def _as_items(value: Any) -> Any:
    if isinstance(value, str):
        return [{"role": "user", "content": value}] if value else []
    if not isinstance(value, list):
        raise ValueError("Input should be a string or a list of items")
    return value


InputItems = Annotated[
    list[InputItem],
    Field(max_length=100_000, fail_fast=True),
    BeforeValidator(_as_items, json_schema_input_type=str | list[InputItem]),
]

_ITEMS: TypeAdapter[list[InputItem]] = TypeAdapter(InputItems)


def read_items(items: Sequence[Item]) -> list[InputItem]:
    """Read items of earlier responses. Raises INVALID_REQUEST for one that cannot be told again."""
    try:
        return _ITEMS.validate_python(list(items))
    except ValidationError as error:
        raise first_error(error, bracketed) from None


def check_references(given: Sequence[InputItem]) -> None:
    """Raise INVALID_REQUEST for a reference in whose place no item was put."""
    for index, item in enumerate(given):
        if isinstance(item, ResponsesItemReference):
            raise invalid_at(f"input[{index}].id", f"Item with id '{item.id}' not found.")


def check_history(earlier: Sequence[InputItem], given: Sequence[InputItem]) -> None:
    """Raise INVALID_REQUEST, by path and id, where items do not fit together.

    Every call has an output, and every output a call before it (contracts 17, bug 32).
    """
    waiting: dict[str, str] = {}
    done: set[str] = set()
    for path, item in _places(earlier, given):
        match item:
            case ResponsesCall(call_id=call_id):
                if call_id in waiting or call_id in done:
                    raise invalid_at(f"{path}.call_id", f"call ids must be unique: {call_id}")
                waiting[call_id] = path
            case ResponsesCallOutput(call_id=call_id):
                if waiting.pop(call_id, None) is None:
                    raise invalid_at(f"{path}.call_id", _stray(call_id, known=call_id in done))
                done.add(call_id)
            case ResponsesMessage():
                _check_images(path, item)
    if waiting:
        call_id, path = next(iter(waiting.items()))
        raise invalid_at(path, f"No tool output found for function call {call_id}.")


def _stray(call_id: str, *, known: bool) -> str:
    if known:
        return f"more than one output for the function call {call_id}"
    return f"No tool call found for function call output with call_id {call_id}."


def _check_images(path: str, message: ResponsesMessage) -> None:
    for position, part in enumerate(message.content):
        if isinstance(part, ResponsesImage) and message.role != "user":
            raise invalid_at(f"{path}.content[{position}]", "images can only be in `user` messages")


def _places(
    earlier: Sequence[InputItem], given: Sequence[InputItem]
) -> Iterator[tuple[str, InputItem]]:
    for item in earlier:
        yield "previous_response_id", item
    for index, item in enumerate(given):
        yield f"input[{index}]", item


def images_of(
    earlier: Sequence[InputItem], given: Sequence[InputItem]
) -> Iterator[tuple[str, ResponsesImage]]:
    """Yield the images with their paths, in the conversation's order."""
    for path, item in _places(earlier, given):
        match item:
            case ResponsesMessage(content=content):
                parts, field = content, "content"
            case ResponsesCallOutput(output=output):
                parts, field = output, "output"
            case _:
                continue
        for position, part in enumerate(parts):
            if isinstance(part, ResponsesImage):
                yield f"{path}.{field}[{position}].image_url", part
