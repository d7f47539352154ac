"""From the wire's messages to the canonical turns, with the place of the last cache breakpoint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec

from gateway.dialects.anthropic.blocks import (
    ImageBlock,
    InputMessage,
    MessageBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolReferenceBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from gateway.dialects.anthropic.placeholder import NOTICE, OMITTED, REMINDER
from inference.request import (
    CacheMark,
    ImagePart,
    Message,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)

BILLING_HEADER = "x-anthropic-billing-header"


class Conversation(NamedTuple):
    """The turns, and the last breakpoint that stands in them."""

    messages: tuple[Message, ...]
    cache_mark: CacheMark | None


class _Piece(NamedTuple):
    part: Part
    marked: bool = False


class _Turn(NamedTuple):
    role: Role
    pieces: list[_Piece]


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
    blind = any(piece.part is REMINDER for turn in turns for piece in turn.pieces)
    merged = list(_alternating([*_system_turn(system, blind), *turns]))
    return Conversation(
        tuple(
            Message(role=turn.role, parts=tuple(piece.part for piece in turn.pieces))
            for turn in merged
        ),
        _last_mark(merged),
    )


def _system_turn(blocks: Sequence[TextBlock], blind: bool) -> Iterator[_Turn]:
    """Join the entries by line: they are written apart and rarely end in a line break.

    A breakpoint on any of them stands for the whole system prompt.
    """
    texts = [_without_billing_header(block.text) for block in blocks]
    if blind:
        texts.append(NOTICE)
    if text := "\n".join(text for text in texts if text):
        marked = any(block.cache_control for block in blocks)
        yield _Turn(Role.SYSTEM, [_Piece(TextPart(text), marked)])


def _without_billing_header(text: str) -> str:
    """Drop the client's attribution line: it differs per request and so defeats prefix caches."""
    return text.partition("\n")[2] if text.startswith(BILLING_HEADER) else text


def _turn(message: InputMessage, images: Iterator[ImagePart] | None) -> _Turn:
    pieces = [piece for block in message.content for piece in _pieces(block, images)]
    if images is None and any(map(_shows_an_image, message.content)):
        pieces.append(_Piece(REMINDER))
    return _Turn(Role(message.role), pieces)


def _shows_an_image(block: MessageBlock) -> bool:
    if isinstance(block, ToolResultBlock):
        return any(isinstance(inner, ImageBlock) for inner in block.content or ())
    return isinstance(block, ImageBlock)


def _pieces(block: MessageBlock, images: Iterator[ImagePart] | None) -> Iterator[_Piece]:
    """Yield the block's piece, if it has anything for the model."""
    match block:
        case ThinkingBlock(thinking=text):
            if text:
                yield _Piece(ThinkingPart(text))
        case RedactedThinkingBlock():
            pass
        case ToolUseBlock():
            arguments = msgspec.json.encode(block.input).decode()
            call = ToolCallPart(id=block.id, name=block.name, arguments=arguments)
            yield _Piece(call, block.cache_control is not None)
        case ToolResultBlock():
            yield _result(block, images)
        case _:
            yield _Piece(_shown(block, images), block.cache_control is not None)


def _result(block: ToolResultBlock, images: Iterator[ImagePart] | None) -> _Piece:
    inner = block.content or []
    part = ToolResultPart(
        call_id=block.tool_use_id,
        parts=tuple(_shown(shown, images) for shown in inner),
        is_error=bool(block.is_error),
    )
    return _Piece(part, any(shown.cache_control for shown in (block, *inner)))


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


def _alternating(turns: Iterable[_Turn]) -> Iterator[_Turn]:
    """Merge neighbours of one role into one turn, as the API promises and templates need.

    Results come first in a turn: templates want them right after the calls.
    """
    spoken = (turn for turn in turns if turn.pieces)
    for role, group in groupby(spoken, key=lambda turn: turn.role):
        pieces = [piece for turn in group for piece in turn.pieces]
        pieces.sort(key=lambda piece: not isinstance(piece.part, ToolResultPart))
        yield _Turn(role, pieces)


def _last_mark(turns: Sequence[_Turn]) -> CacheMark | None:
    for message in range(len(turns) - 1, -1, -1):
        pieces = turns[message].pieces
        for part in range(len(pieces) - 1, -1, -1):
            if pieces[part].marked:
                return CacheMark(message=message, part=part)
    return None
