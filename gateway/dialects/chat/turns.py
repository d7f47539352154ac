"""From the wire's messages to the canonical turns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gateway.dialects.chat.messages import (
    AssistantMessage,
    ChatImagePart,
    ChatMessage,
    ChatRefusalPart,
    ChatTextPart,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from gateway.dialects.functions import arguments_object
from gateway.dialects.placeholder import OMITTED, REMINDER
from gateway.dialects.turns import Piece, Turn, assemble
from inference.request import (
    ImagePart,
    Message,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)


def conversation(
    messages: Sequence[ChatMessage], images: Iterable[ImagePart] | None
) -> tuple[Message, ...]:
    """Return the canonical turns.

    `images` are those of the messages, in order; None means that the model has no vision.
    """
    pictures = None if images is None else iter(images)
    leading = 0
    while leading < len(messages) and isinstance(messages[leading], SystemMessage):
        leading += 1
    system = [
        "".join(part.text for part in message.content)
        for message in messages[:leading]
        if isinstance(message, SystemMessage)
    ]
    turns = [_turn(message, pictures) for message in messages[leading:]]
    return assemble(system, turns).messages


def _turn(message: ChatMessage, images: Iterator[ImagePart] | None) -> Turn:
    match message:
        case SystemMessage():
            return Turn(Role.SYSTEM, _pieces(_told(message)))
        case UserMessage(content=content):
            parts: list[Part] = [*_shown(content, images), *_reminder(content, images)]
            return Turn(Role.USER, _pieces(parts))
        case AssistantMessage():
            return Turn(Role.ASSISTANT, _pieces(_said(message)))
        case ToolMessage(content=content):
            result = ToolResultPart(
                call_id=message.tool_call_id, parts=tuple(_shown(content, images))
            )
            return Turn(Role.USER, _pieces([result, *_reminder(content, images)]))


def _pieces(parts: Iterable[Part]) -> list[Piece]:
    return [Piece(part) for part in parts]


def _told(message: SystemMessage) -> Iterator[Part]:
    for part in message.content:
        if part.text:
            yield TextPart(part.text)


def _shown(
    content: Sequence[ChatTextPart | ChatImagePart], images: Iterator[ImagePart] | None
) -> Iterator[TextPart | ImagePart]:
    """Yield what a user or a tool shows. Text may be empty: the turn is there all the same."""
    for part in content:
        if isinstance(part, ChatTextPart):
            yield TextPart(part.text)
        else:
            yield OMITTED if images is None else next(images)


def _reminder(
    content: Sequence[ChatTextPart | ChatImagePart], images: Iterator[ImagePart] | None
) -> list[Part]:
    if images is None and any(isinstance(part, ChatImagePart) for part in content):
        return [REMINDER]
    return []


def _said(message: AssistantMessage) -> Iterator[Part]:
    if thought := message.reasoning_content or message.reasoning:
        yield ThinkingPart(thought)
    for part in message.content or ():
        text = part.refusal if isinstance(part, ChatRefusalPart) else part.text
        if text:
            yield TextPart(text)
    if message.refusal:
        yield TextPart(message.refusal)
    for call in message.tool_calls or ():
        arguments = arguments_object(call.function.arguments)
        yield ToolCallPart(id=call.id, name=call.function.name, arguments=arguments)
