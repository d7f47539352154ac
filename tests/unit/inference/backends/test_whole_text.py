"""Whatever pieces text comes in, what is sent on can be encoded."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.backends.whole_text import TextMender, mended
from inference.events import (
    Event,
    Finished,
    FinishReason,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
)

SENT = "a🚲é🎉z"
NO_USAGE = Usage(prompt_tokens=0, cached_tokens=0, output_tokens=0)


def fed(*events: Event) -> list[Event]:
    """Return what comes of events, each of which can be encoded."""
    mender = TextMender()
    shown = [whole for event in events if (whole := mender.feed(event)) is not None]
    for event in shown:
        msgspec.msgpack.encode(event)
    return shown


@given(st.lists(st.integers(min_value=0, max_value=7), max_size=8))
def test_characters_that_were_cut_in_two_are_put_together(cuts: list[int]) -> None:
    units = SENT.encode("utf-16-le")
    assert len(units) == 2 * 7
    places = sorted({0, 7, *cuts})
    pieces = [
        units[2 * start : 2 * stop].decode("utf-16-le", "surrogatepass")
        for start, stop in pairwise(places)
    ]
    shown = fed(*map(TextDelta, pieces))
    assert "".join(event.text for event in shown if isinstance(event, TextDelta)) == SENT


@pytest.mark.parametrize("text", ["plain", "é", "🚲"])
def test_what_is_whole_is_left_as_it_is(text: str) -> None:
    event = TextDelta(text)
    assert fed(event) == [event]
    assert mended(text) == text


def test_a_half_that_is_alone_is_replaced() -> None:
    assert mended("a\ud83db\udeb2") == "a\ufffdb\ufffd"
    assert fed(TextDelta("a\udeb2")) == [TextDelta("a\ufffd")]


def test_halves_of_different_kinds_do_not_meet() -> None:
    events = fed(ThinkingDelta("a\ud83d"), TextDelta("\udeb2b"))
    assert events == [ThinkingDelta("a"), TextDelta("\ufffdb")]


def test_arguments_and_names_are_mended_too() -> None:
    events = fed(
        ToolCallStarted(id="1", name="f\ud83d"), ToolCallDelta('"\ud83d'), ToolCallDelta('\udeb2"')
    )
    assert events == [
        ToolCallStarted(id="1", name="f\ufffd"),
        ToolCallDelta('"'),
        ToolCallDelta('🚲"'),
    ]


def test_the_text_that_ended_an_answer_is_mended() -> None:
    finished = Finished(reason=FinishReason.STOP_SEQUENCE, usage=NO_USAGE, stop_sequence="\ud83d")
    (shown,) = fed(finished)
    assert isinstance(shown, Finished)
    assert shown.stop_sequence == "\ufffd"
