"""From the Responses API's items to the canonical turns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gateway.dialects.functions import arguments_object
from gateway.dialects.placeholder import OMITTED, REMINDER
from gateway.dialects.responses.history import (
    InputItem,
    Part,
    ResponsesCall,
    ResponsesCallOutput,
    ResponsesImage,
    ResponsesMcpCall,
    ResponsesMcpList,
    ResponsesMessage,
    ResponsesReasoning,
    ResponsesRefusal,
)
from gateway.dialects.turns import Piece, Turn, assemble
from inference.request import (
    ImagePart,
    Message,
    Role,
    ServerToolCallPart,
    ServerToolResultPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)

_NOTHING = TextPart("")
_ROLES = {
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
}


def conversation(
    instructions: str | None, items: Sequence[InputItem], images: Iterable[ImagePart] | None
) -> tuple[Message, ...]:
    """Return the canonical turns.

    `images` are those of the items, in order; None means that the model has no vision.
    """
    pictures = None if images is None else iter(images)
    turns = [_turn(item, pictures) for item in items]
    return assemble([instructions or ""], turns).messages


def _turn(item: InputItem, images: Iterator[ImagePart] | None) -> Turn:
    match item:
        case ResponsesMessage(role=role, content=content):
            return Turn(_ROLES[role], _blind(content, images, _said(content, images)))
        case ResponsesCallOutput(call_id=call_id, output=output):
            parts = tuple(piece.part for piece in _said(output, images))
            result = Piece(ToolResultPart(call_id=call_id, parts=parts))  # type: ignore[arg-type]
            return Turn(Role.USER, _blind(output, images, [result]))
        case ResponsesCall(call_id=call_id, name=name, arguments=arguments):
            call = ToolCallPart(id=call_id, name=name, arguments=arguments_object(arguments))
            return Turn(Role.ASSISTANT, [Piece(call)])
        case ResponsesMcpCall():
            return Turn(Role.ASSISTANT, _server_call(item))
        case ResponsesMcpList():
            return Turn(Role.ASSISTANT, [])
        case ResponsesReasoning(text=text):
            return Turn(Role.ASSISTANT, [Piece(ThinkingPart(text))] if text else [])
    raise AssertionError(f"a {type(item).__name__} has no place here")


def _server_call(item: ResponsesMcpCall) -> list[Piece]:
    error = item.error_text
    call = ServerToolCallPart(
        id=item.id,
        server=item.server_label,
        name=item.name,
        arguments=arguments_object(item.arguments),
    )
    result = ServerToolResultPart(
        call_id=item.id, text=error or item.output or "", is_error=bool(error)
    )
    return [Piece(call), Piece(result)]


def _said(parts: Sequence[Part], images: Iterator[ImagePart] | None) -> list[Piece]:
    shown = (_shown(part, images) for part in parts)
    return [Piece(part) for part in shown if part != _NOTHING]


def _shown(part: Part, images: Iterator[ImagePart] | None) -> TextPart | ImagePart:
    match part:
        case ResponsesImage():
            return OMITTED if images is None else next(images)
        case ResponsesRefusal(refusal=text):
            return TextPart(text)
    return TextPart(part.text)


def _blind(
    parts: Sequence[Part], images: Iterator[ImagePart] | None, pieces: list[Piece]
) -> list[Piece]:
    """Remind a model that sees nothing of an image that it was not shown."""
    unseen = images is None and any(isinstance(part, ResponsesImage) for part in parts)
    return [*pieces, Piece(REMINDER)] if unseen else pieces
