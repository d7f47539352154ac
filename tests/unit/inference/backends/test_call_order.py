"""Pieces of several calls, in any order, make the same calls."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.backends.answers import Blocks, CallPiece, FunctionPiece
from inference.backends.call_order import CallOrder
from inference.events import Delta, ToolCallDelta, ToolCallStarted

ARGUMENTS = ['{"x":', " [1,", " 2]", "}"]


def made(pieces: list[CallPiece]) -> list[list[str]]:
    """Return the name and the arguments of each call that comes of pieces."""
    blocks = Blocks()
    order = CallOrder(blocks)
    deltas: list[Delta] = [delta for piece in pieces for delta in order.add(piece)]
    found: list[list[str]] = []
    for delta in [*deltas, *order.end(), *blocks.end()]:
        match delta:
            case ToolCallStarted(name=name):
                found.append([name, ""])
            case ToolCallDelta(arguments=arguments):
                found[-1][1] += arguments
    return found


def pieces_of(number: int) -> list[CallPiece]:
    named = CallPiece(number, FunctionPiece(f"f{number}"))
    return [named, *(CallPiece(number, FunctionPiece(None, text)) for text in ARGUMENTS)]


@given(st.permutations([0] * 5 + [1] * 5 + [2] * 5))
def test_no_piece_goes_to_another_call(turns: list[int]) -> None:
    # Calls are counted in the order of their first pieces.
    numbers = {call: number for number, call in enumerate(dict.fromkeys(turns))}
    waiting = {call: pieces_of(number) for call, number in numbers.items()}
    sent = [waiting[call].pop(0) for call in turns]
    assert made(sent) == [[f"f{number}", "".join(ARGUMENTS)] for number in range(3)]


def test_a_call_is_open_as_soon_as_the_one_before_it_is_whole() -> None:
    blocks = Blocks()
    order = CallOrder(blocks)
    for piece in pieces_of(0):
        list(order.add(piece))
    *_, started = order.add(pieces_of(1)[0])
    assert isinstance(started, ToolCallStarted)
    assert started.name == "f1"


@pytest.mark.parametrize("arguments", [None, ""])
def test_a_call_without_arguments_holds_up_others_until_the_end_only(
    arguments: str | None,
) -> None:
    sent = [CallPiece(0, FunctionPiece("f0", arguments)), *pieces_of(1)]
    assert made(sent) == [["f0", "{}"], ["f1", "".join(ARGUMENTS)]]
