"""Calls that the server ran, replayed to the model as the tool calls and results that it saw."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec

from inference.request import (
    CacheMark,
    GenerationRequest,
    Message,
    Part,
    Role,
    ServerToolCallPart,
    ServerToolResultPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

NameOf = Callable[[str, str], str]
"""The name that a server's tool has for the model, of the server's name and the tool's own."""

Place = tuple[int, int]


class _Placed(NamedTuple):
    """A part, and where it stood."""

    part: Part
    place: Place


class _Turn(NamedTuple):
    role: Role
    parts: list[_Placed]


def has_server_calls(messages: Iterable[Message]) -> bool:
    """Say whether any of the messages holds a call that the server ran."""
    return any(
        isinstance(part, ServerToolCallPart)
        for message in messages
        if message.role is Role.ASSISTANT
        for part in message.parts
    )


def unanswered(messages: Sequence[Message]) -> tuple[ServerToolCallPart, ...]:
    """Return the calls of the last turn that the server has yet to run."""
    if not messages or messages[-1].role is not Role.ASSISTANT:
        return ()
    parts = messages[-1].parts
    answered = {part.call_id for part in parts if isinstance(part, ServerToolResultPart)}
    calls = (part for part in parts if isinstance(part, ServerToolCallPart))
    return tuple(call for call in calls if call.id not in answered)


def replay(request: GenerationRequest, name_of: NameOf) -> GenerationRequest:
    """Return the request with ordinary calls and results in the place of the server's.

    A result ends the assistant's turn as far as it came: the model sees the same sequence of turns
    as when the server ran the call. The cache mark stays behind the part that it stood behind.
    """
    if not has_server_calls(request.messages):
        return request
    turns = _merged(
        turn
        for index, message in enumerate(request.messages)
        for turn in _turns(index, message, name_of)
    )
    return msgspec.structs.replace(
        request,
        messages=tuple(
            Message(role=turn.role, parts=tuple(placed.part for placed in turn.parts))
            for turn in turns
        ),
        cache_mark=_moved(request.cache_mark, turns),
    )


def _turns(index: int, message: Message, name_of: NameOf) -> Iterator[_Turn]:
    placed = [_Placed(part, (index, number)) for number, part in enumerate(message.parts)]
    replayed = (_replayed(each, name_of) for each in placed)
    for is_result, group in groupby(replayed, key=lambda each: _is_server_result(message, each)):
        yield _Turn(Role.USER if is_result else message.role, list(group))


def _is_server_result(message: Message, placed: _Placed) -> bool:
    return message.role is Role.ASSISTANT and isinstance(placed.part, ToolResultPart)


def _replayed(placed: _Placed, name_of: NameOf) -> _Placed:
    match placed.part:
        case ServerToolCallPart(id=call_id, server=server, name=name, arguments=arguments):
            call = ToolCallPart(id=call_id, name=name_of(server, name), arguments=arguments)
            return placed._replace(part=call)
        case ServerToolResultPart(call_id=call_id, text=text, is_error=is_error):
            parts = (TextPart(text),)
            return placed._replace(
                part=ToolResultPart(call_id=call_id, parts=parts, is_error=is_error)
            )
    return placed


def _merged(turns: Iterable[_Turn]) -> list[_Turn]:
    """Merge neighbours of one role: after a mixed round, the server's results and the caller's."""
    return [
        _Turn(role, [placed for turn in group for placed in turn.parts])
        for role, group in groupby(turns, key=lambda turn: turn.role)
    ]


def _moved(mark: CacheMark | None, turns: Sequence[_Turn]) -> CacheMark | None:
    if mark is None or mark.message < 0:
        return mark
    for index, turn in enumerate(turns):
        for number, placed in enumerate(turn.parts):
            if placed.place == (mark.message, mark.part):
                return CacheMark(message=index, part=number)
    raise AssertionError("the mark stands behind no part")
