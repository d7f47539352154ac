"""A second attempt joined to the first."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from inference.engine.splice import Splice, SpliceError
from inference.errors import ErrorCode
from inference.events import (
    Event,
    Failed,
    Finished,
    FinishReason,
    Likely,
    ServerToolCall,
    ServerToolResult,
    Started,
    TextDelta,
    ThinkingDelta,
    TokenLogprob,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
)
from inference.fold import Parts
from inference.request import ToolCallPart

FINISHED = Finished(
    reason=FinishReason.END, usage=Usage(prompt_tokens=1, cached_tokens=0, output_tokens=1)
)
CALL = ToolCallStarted(id="first", name="look")


def splice(said: list[Event], again: list[Event]) -> list[Event]:
    """Return what an attempt still says after `said` has been said."""
    splicing = Splice(said)
    fed = [splicing.feed(event) for event in again]
    return [event for event in fed if event is not None]


def scored(text: str, *tokens: str) -> TextDelta:
    return TextDelta(
        text, tuple(TokenLogprob(Likely(token, -1.0, token.encode())) for token in tokens)
    )


def test_a_first_attempt_says_everything() -> None:
    deltas: list[Event] = [ThinkingDelta("hm"), TextDelta("a"), CALL, ToolCallDelta("{}")]
    events = [Started(3), *deltas, FINISHED]
    assert splice([], events) == events


def test_what_was_said_is_not_said_again() -> None:
    said: list[Event] = [Started(3), TextDelta("one "), TextDelta("two")]
    again: list[Event] = [Started(3), TextDelta("one"), TextDelta(" two three"), FINISHED]
    assert splice(said, again) == [TextDelta(" three"), FINISHED]


def test_a_start_that_was_not_told_of_is_told_of() -> None:
    assert splice([], [Started(3)]) == [Started(3)]


def test_a_call_goes_on_under_its_first_id() -> None:
    said: list[Event] = [Started(1), CALL, ToolCallDelta('{"pla')]
    other = ToolCallStarted(id="second", name="look")
    again: list[Event] = [Started(1), other, ToolCallDelta('{"place": 1}'), other, FINISHED]
    assert splice(said, again) == [ToolCallDelta('ce": 1}'), other, FINISHED]


def test_a_call_of_which_only_the_name_was_said_goes_on() -> None:
    again: list[Event] = [ToolCallStarted(id="second", name="look"), ToolCallDelta("{}")]
    assert splice([CALL], again) == [ToolCallDelta("{}")]


def test_another_block_begins_where_what_was_said_ended() -> None:
    again: list[Event] = [ThinkingDelta("hm"), TextDelta("a"), CALL]
    assert splice([ThinkingDelta("h"), ThinkingDelta("m")], again) == [TextDelta("a"), CALL]


def test_the_scores_of_what_was_said_are_not_given_again() -> None:
    said: list[Event] = [scored("one ", "one", " ")]
    again: list[Event] = [scored("one two", "one", " ", "two")]
    assert splice(said, again) == [scored("two", "two")]


@pytest.mark.parametrize(
    ("said", "again"),
    [
        ([TextDelta("one")], [TextDelta("two")]),
        ([TextDelta("one two")], [TextDelta("one"), FINISHED]),
        ([TextDelta("one")], [ThinkingDelta("one")]),
        ([TextDelta("one")], [CALL]),
        ([TextDelta("one"), CALL], [TextDelta("one two")]),
        ([TextDelta("one"), CALL], [TextDelta("one"), FINISHED]),
        ([CALL], [ToolCallStarted(id="second", name="listen")]),
        ([CALL], [TextDelta("one")]),
        ([CALL, ToolCallDelta('{"a": 1}')], [CALL, ToolCallDelta('{"b')]),
    ],
    ids=str,
)
def test_what_differs_cannot_go_on(said: list[Event], again: list[Event]) -> None:
    with pytest.raises(SpliceError):
        splice(said, again)


def test_a_failure_is_told_whatever_was_said() -> None:
    failed = Failed(code=ErrorCode.ENGINE_FAILED, message="no")
    assert splice([TextDelta("one")], [failed]) == [failed]


def pieces(kind: type[TextDelta | ThinkingDelta | ToolCallDelta], cuts: list[int]) -> list[Event]:
    text = "abcdefghij"
    bounds = [0, *sorted(cuts), len(text)]
    return [kind(text[a:b]) for a, b in pairwise(bounds) if a < b]


cuts = st.lists(st.integers(0, 10), max_size=4)


@given(st.tuples(cuts, cuts, cuts), st.tuples(cuts, cuts, cuts), st.integers(0, 20))
def test_any_two_cuts_of_one_answer_join_to_it(
    first: tuple[list[int], ...], second: tuple[list[int], ...], told: int
) -> None:
    def answer(how: tuple[list[int], ...], call_id: str) -> list[Event]:
        return [
            Started(1),
            *pieces(ThinkingDelta, how[0]),
            *pieces(TextDelta, how[1]),
            ToolCallStarted(id=call_id, name="look"),
            *pieces(ToolCallDelta, how[2]),
        ]

    said = answer(first, "first")[:told]
    whole = said + splice(said, answer(second, "second"))
    assert whole.count(Started(1)) == 1
    parts = Parts()
    for event in whole[1:]:
        parts.add(event)  # type: ignore[arg-type]
    thought, text, call = parts.closed()
    assert (thought.text, text.text) == ("abcdefghij", "abcdefghij")  # type: ignore[union-attr]
    assert isinstance(call, ToolCallPart)
    assert call.arguments == "abcdefghij"


def test_tools_that_the_server_ran_are_not_told_twice() -> None:
    first = ServerToolCall(id="a", server="s", name="now", arguments="{}")
    said: list[Event] = [
        Started(3),
        TextDelta("Hm."),
        first,
        ServerToolResult(call_id="a", text="1"),
    ]
    again: list[Event] = [
        *(Started(3), TextDelta("Hm."), replace(first, id="b")),
        *(ServerToolResult(call_id="b", text="2"), TextDelta("So."), FINISHED),
    ]
    assert splice(said, again) == [TextDelta("So."), FINISHED]


def test_a_result_that_is_told_only_now_is_that_of_the_call_that_was_told() -> None:
    first = ServerToolCall(id="a", server="s", name="now", arguments="{}")
    again: list[Event] = [
        Started(3),
        replace(first, id="b"),
        ServerToolResult(call_id="b", text="2"),
    ]
    assert splice([Started(3), first], again) == [ServerToolResult(call_id="a", text="2")]


@pytest.mark.parametrize(
    "event",
    [
        ServerToolCall(id="b", server="s", name="later", arguments="{}"),
        ServerToolCall(id="b", server="s", name="now", arguments='{"a":1}'),
        ToolCallStarted(id="b", name="now"),
    ],
)
def test_another_call_cannot_go_on(event: Event) -> None:
    first = ServerToolCall(id="a", server="s", name="now", arguments="{}")
    with pytest.raises(SpliceError):
        splice([Started(3), first], [Started(3), event])
