"""From the wire's messages to the canonical turns, with the place of the last cache breakpoint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from gateway.dialects.anthropic.blocks import (
    ImageBlock,
    InputMessage,
    McpToolResultBlock,
    McpToolUseBlock,
    MessageBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolReferenceBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from gateway.dialects.placeholder import OMITTED, REMINDER
from gateway.dialects.turns import Conversation, Piece, Turn, assemble
from inference.request import (
    ImagePart,
    Role,
    ServerToolCallPart,
    ServerToolResultPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)

BILLING_HEADER = "x-anthropic-billing-header"


def conversation(
    system: Sequence[TextBlock],
    messages: Sequence[InputMessage],
    images: Iterable[ImagePart] | None,
) -> Conversation:
    """Return the canonical turns.

    `images` are those of the messages, in order; None means that the model has no vision.
    """
    pictures = None if images is None else iter(images)
    turns = [_turn(message, pictures) for message in messages]
    return assemble(
        [_without_billing_header(block.text) for block in system],
        turns,
        marked=any(block.cache_control for block in system),
    )


def _without_billing_header(text: str) -> str:
    """Drop the client's attribution line: it differs per request and so defeats prefix caches."""
    return text.partition("\n")[2] if text.startswith(BILLING_HEADER) else text


def _turn(message: InputMessage, images: Iterator[ImagePart] | None) -> Turn:
    pieces = [piece for block in message.content for piece in _pieces(block, images)]
    if images is None and any(map(_shows_an_image, message.content)):
        pieces.append(Piece(REMINDER))
    return Turn(Role(message.role), pieces)


def _shows_an_image(block: MessageBlock) -> bool:
    if isinstance(block, ToolResultBlock):
        return any(isinstance(inner, ImageBlock) for inner in block.content or ())
    return isinstance(block, ImageBlock)


def _pieces(block: MessageBlock, images: Iterator[ImagePart] | None) -> Iterator[Piece]:
    """Yield the block's piece, if it has anything for the model."""
    match block:
        case ThinkingBlock(thinking=text):
            if text:
                yield Piece(ThinkingPart(text))
        case RedactedThinkingBlock():
            pass
        case ToolUseBlock():
            arguments = msgspec.json.encode(block.input).decode()
            call = ToolCallPart(id=block.id, name=block.name, arguments=arguments)
            yield Piece(call, block.cache_control is not None)
        case ToolResultBlock():
            yield _result(block, images)
        case McpToolUseBlock() | McpToolResultBlock():
            yield Piece(_server_part(block), block.cache_control is not None)
        case _:
            yield Piece(_shown(block, images), block.cache_control is not None)


def _result(block: ToolResultBlock, images: Iterator[ImagePart] | None) -> Piece:
    inner = block.content or []
    part = ToolResultPart(
        call_id=block.tool_use_id,
        parts=tuple(_shown(shown, images) for shown in inner),
        is_error=bool(block.is_error),
    )
    return Piece(part, any(shown.cache_control for shown in (block, *inner)))


def _server_part(
    block: McpToolUseBlock | McpToolResultBlock,
) -> ServerToolCallPart | ServerToolResultPart:
    if isinstance(block, McpToolUseBlock):
        arguments = msgspec.json.encode(block.input).decode()
        return ServerToolCallPart(
            id=block.id, server=block.server_name, name=block.name, arguments=arguments
        )
    text = "\n".join(inner.text for inner in block.content or ())
    return ServerToolResultPart(call_id=block.tool_use_id, text=text, is_error=bool(block.is_error))


def _shown(
    block: TextBlock | ImageBlock | ToolReferenceBlock, images: Iterator[ImagePart] | None
) -> TextPart | ImagePart:
    match block:
        case TextBlock():
            return TextPart(block.text)
        case ImageBlock():
            return OMITTED if images is None else next(images)
        case ToolReferenceBlock():
            # Nothing is deferred: the model knows the tool already and only needs its name.
            return TextPart(f"[tool found: {block.tool_name}]")
