"""What lies before a cache mark."""

from __future__ import annotations

import msgspec
import pytest

from inference.backends.marks import common_length, marked_prefix
from inference.request import CacheMark, GenerationRequest, Message, Role
from tests.contracts.requests import make_request, say

SYSTEM = say(Role.SYSTEM, "a", "b")
USER = say(Role.USER, "c", "d")
ASSISTANT = say(Role.ASSISTANT, "e")
FILLER = say(Role.USER, "?")


def marked(message: int, part: int) -> GenerationRequest:
    request = make_request(SYSTEM, USER, ASSISTANT, say(Role.USER, "f"))
    return msgspec.structs.replace(request, cache_mark=CacheMark(message=message, part=part))


@pytest.mark.parametrize(
    ("message", "part", "messages"),
    [
        (-1, 0, (FILLER,)),
        (0, 0, (say(Role.SYSTEM, "a"), FILLER)),
        (0, 1, (SYSTEM, FILLER)),
        (1, 0, (SYSTEM, say(Role.USER, "c"))),
        (2, 0, (SYSTEM, USER, ASSISTANT, FILLER)),
        (3, 0, (SYSTEM, USER, ASSISTANT, say(Role.USER, "f"))),
    ],
)
def test_it_cuts_behind_the_mark_and_lets_the_user_end(
    message: int, part: int, messages: tuple[Message, ...]
) -> None:
    prefix = marked_prefix(marked(message, part))
    assert prefix is not None
    assert prefix.messages == messages


def test_it_keeps_everything_else() -> None:
    request = marked(3, 0)
    assert marked_prefix(request) == msgspec.structs.replace(request, cache_mark=None)


def test_it_has_no_prefix_without_a_mark() -> None:
    assert marked_prefix(make_request("Hello.")) is None


@pytest.mark.parametrize(
    ("left", "right", "length"),
    [
        ([], [], 0),
        ([1, 2], [1, 2], 2),
        ([1, 2, 3], [1, 2], 2),
        ([1, 2], [1, 3, 4], 1),
        ([1], [2], 0),
    ],
)
def test_it_measures_a_common_beginning(left: list[int], right: list[int], length: int) -> None:
    assert common_length(left, right) == length
