"""Blocks, one after another, of whatever a parser found."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.backends.answers import Blocks
from inference.events import Delta, TextDelta, ThinkingDelta, ToolCallDelta, ToolCallStarted


@dataclass
class Function:
    name: str | None = None
    arguments: str | None = None


@dataclass
class Call:
    index: int
    function: Function | None


@dataclass
class Parsed:
    reasoning: str | None = None
    content: str | None = None
    tool_calls: list[Call] = field(default_factory=list)


def call(index: int, name: str | None = None, arguments: str | None = None) -> Parsed:
    return Parsed(tool_calls=[Call(index, Function(name, arguments))])


def text(content: str) -> Parsed:
    return Parsed(content=content)


def play(*steps: Parsed, one_call: bool = False) -> tuple[list[Delta], Blocks]:
    blocks = Blocks(one_call=one_call)
    events = [event for step in steps for event in blocks.add(step)]
    return [*events, *blocks.end()], blocks


def brief(events: list[Delta]) -> list[str]:
    """Return the blocks, each with its kind and content."""
    told: list[str] = []
    for event in events:
        match event:
            case ToolCallStarted(name=name):
                told.append(f"{name}: ")
            case ToolCallDelta(arguments=arguments):
                told[-1] += arguments
            case TextDelta(text=content) | ThinkingDelta(text=content):
                kind = "text: " if isinstance(event, TextDelta) else "thinking: "
                if not told or not told[-1].startswith(kind):
                    told.append(kind)
                told[-1] += content
    return told


def test_it_passes_thinking_text_and_calls_on_in_order() -> None:
    step = Parsed(reasoning="Hm.", content="Let me see.", tool_calls=call(0, "f", "{}").tool_calls)
    events, blocks = play(step)
    assert brief(events) == ["thinking: Hm.", "text: Let me see.", "f: {}"]
    assert blocks.called


def test_it_gives_every_call_an_id_of_its_own() -> None:
    events, _ = play(call(0, "f", "{}"), call(1, "f", "{}"))
    ids = [event.id for event in events if isinstance(event, ToolCallStarted)]
    assert len(set(map(uuid.UUID, ids))) == 2


def test_it_streams_arguments_as_they_come() -> None:
    blocks = Blocks()
    steps = [call(0, "f"), call(0, None, '{"a": "x'), call(0, None, "y"), call(0, None, '"}')]
    streamed = [[*blocks.add(step)] for step in steps]
    assert streamed[1:3] == [[ToolCallDelta('{"a": "x')], [ToolCallDelta("y")]]


def test_bug_09_arguments_that_come_with_the_name_are_kept() -> None:
    events, _ = play(call(0, "f", '{"a": '), call(0, None, "1}"))
    assert brief(events) == ['f: {"a": 1}']


def test_bug_46_text_in_the_middle_of_arguments_waits_for_their_end() -> None:
    events, _ = play(call(0, "f", '{"a": '), text("Done."), call(0, None, "1}"))
    assert brief(events) == ['f: {"a": 1}', "text: Done."]


def test_bug_63_calls_are_told_apart_by_their_index() -> None:
    events, _ = play(call(0, "f", '{"a": 1'), call(1, "g", "{}"))
    assert brief(events) == ['f: {"a": 1}', "g: {}"]


def test_it_repairs_arguments() -> None:
    events, _ = play(call(0, "f", "{'a': 1}}"))
    assert brief(events) == ['f: {"a":1}']


def test_a_call_without_arguments_has_an_empty_object() -> None:
    assert brief(play(call(0, "f"))[0]) == ["f: {}"]


def test_it_ignores_pieces_of_calls_that_never_began_or_are_over() -> None:
    nameless = call(0, None, '{"a": 1}')
    empty = Parsed(tool_calls=[Call(0, None)])
    events, _ = play(nameless, empty, call(1, "g", "{}"), call(0, None, "x"))
    assert brief(events) == ["g: {}"]


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ((text("\n\n"), call(0, "f")), ["f: {}"]),
        ((call(0, "f"), text("\n"), call(1, "g"), text("\n")), ["f: {}", "g: {}"]),
        ((Parsed(reasoning="Hm."), text("\n\n"), call(0, "f")), ["thinking: Hm.", "f: {}"]),
        ((text("\n"), text("\nHello. "), text(" ")), ["text: \n\nHello.  "]),
        ((text(" "),), []),
    ],
)
def test_space_around_calls_is_no_text(steps: tuple[Parsed, ...], told: list[str]) -> None:
    assert brief(play(*steps)[0]) == told


def test_it_stops_after_the_first_call_where_one_is_wanted() -> None:
    steps = [text("So."), call(0, "f", '{"a": 1}'), call(1, "g", "{}"), text("More.")]
    events, blocks = play(*steps, one_call=True)
    assert brief(events)[:2] == ["text: So.", 'f: {"a": 1}']
    assert "g: {}" not in brief(events)
    assert blocks.full


@pytest.mark.parametrize(("arguments", "cut"), [('{"a": 1}', False), ('{"a": "x', True)])
def test_it_knows_a_call_that_was_cut(arguments: str, cut: bool) -> None:
    blocks = Blocks()
    list(blocks.add(call(0, "f", arguments)))
    assert blocks.is_cut() is cut


STEPS = st.lists(
    st.builds(
        Parsed,
        reasoning=st.none() | st.text(max_size=3),
        content=st.none() | st.text(max_size=3),
        tool_calls=st.lists(
            st.builds(
                Call,
                st.integers(0, 3),
                st.none()
                | st.builds(
                    Function,
                    st.sampled_from([None, "", "f"]),
                    st.none() | st.sampled_from(['{"a": ', "1", "}", "x", '"']),
                ),
            ),
            max_size=2,
        ),
    ),
    max_size=8,
)


@given(steps=STEPS, one_call=st.booleans())
def test_any_steps_are_whole_blocks_one_after_another(steps: list[Parsed], one_call: bool) -> None:
    events, blocks = play(*steps, one_call=one_call)
    arguments: list[str] = []
    in_call = False
    for event in events:
        match event:
            case ToolCallStarted():
                in_call = True
                arguments.append("")
            case ToolCallDelta(arguments=piece):
                assert in_call
                assert piece
                arguments[-1] += piece
            case TextDelta(text=content) | ThinkingDelta(text=content):
                in_call = False
                assert content
    assert all(isinstance(json.loads(whole), dict) for whole in arguments)
    assert blocks.called is bool(arguments)
    assert not one_call or len(arguments) <= 1
