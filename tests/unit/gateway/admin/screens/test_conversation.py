"""Prompts and answers of every dialect as text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.admin.screens.conversation import (
    SHOWN_CHARS,
    Piece,
    answer_pieces,
    settings_of,
    tools_of,
    turns_of,
)
from inference.fold import KeptPart, RawPart
from inference.request import (
    ServerToolCallPart,
    ServerToolResultPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=12,
)


def said(body: dict[str, Any]) -> list[tuple[str, list[tuple[str, str, str]]]]:
    return [
        (turn.role, [(piece.kind, piece.text, piece.label) for piece in turn.pieces])
        for turn in turns_of(body)
    ]


def test_messages_are_turns_with_the_system_prompt_first() -> None:
    body = {
        "messages": [
            {"role": "user", "content": "Hello"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": ""},
                    {"type": "text", "text": "Hi"},
                    {"type": "tool_use", "id": "t", "name": "weather", "input": {"city": "Bonn"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t",
                        "is_error": True,
                        "content": [{"type": "text", "text": "no such city"}],
                    }
                ],
            },
        ],
        "system": [{"type": "text", "text": "Be brief."}],
    }
    assert said(body) == [
        ("system", [("text", "Be brief.", "")]),
        ("user", [("text", "Hello", "")]),
        (
            "assistant",
            [
                ("thinking", "Hm.", ""),
                ("text", "Hi", ""),
                ("call", '{\n  "city": "Bonn"\n}', "weather"),
            ],
        ),
        ("user", [("result", "no such city", "error")]),
    ]


def test_chat_s_calls_results_and_reasoning_are_told() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}
    body = {
        "messages": [
            {"role": "developer", "content": "Be brief."},
            {"role": "assistant", "content": None, "reasoning": "Hm.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "2"},
        ]
    }
    assert said(body) == [
        ("developer", [("text", "Be brief.", "")]),
        ("assistant", [("thinking", "Hm.", ""), ("call", '{\n  "a": 1\n}', "add")]),
        ("tool", [("result", "2", "")]),
    ]


def test_responses_items_are_turns() -> None:
    body = {
        "instructions": "Be brief.",
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
            {"type": "function_call", "name": "add", "arguments": "{}", "call_id": "c"},
            {"type": "function_call_output", "call_id": "c", "output": "2"},
        ],
    }
    assert said(body) == [
        ("system", [("text", "Be brief.", "")]),
        ("user", [("text", "Hi", "")]),
        ("assistant", [("thinking", "Hm.", "")]),
        ("assistant", [("call", "{}", "add")]),
        ("tool", [("result", "2", "")]),
    ]
    assert said({"input": "Hello"}) == [("user", [("text", "Hello", "")])]


@pytest.mark.parametrize(
    ("block", "text"),
    [
        (
            {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/png", "data": "A" * 5000},
            },
            "image/png, 5,000 characters",
        ),
        ({"type": "image", "source": {"type": "url", "url": "https://a/b.png"}}, "https://a/b.png"),
        (
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            "data:image/png;base64, 4 characters",
        ),
        ({"type": "input_image", "image_url": "https://a/c.png"}, "https://a/c.png"),
    ],
)
def test_of_an_image_it_is_told_what_it_is(block: dict[str, Any], text: str) -> None:
    body = {"messages": [{"role": "user", "content": [block]}]}
    assert said(body) == [("user", [("image", text, "")])]


def test_what_is_not_known_is_shown_as_it_is() -> None:
    body = {"messages": [{"role": "user", "content": [{"type": "hologram", "data": 1}]}, 5]}
    (_, [(kind, text, label)]), (_, [(_, number, _)]) = said(body)
    assert (kind, json.loads(text), label) == ("other", {"type": "hologram", "data": 1}, "hologram")
    assert number == "5"


@given(st.dictionaries(st.sampled_from(["messages", "system", "input", "tools"]), JSON))
def test_any_body_can_be_shown(body: dict[str, Any]) -> None:
    for turn in turns_of(body):
        assert all(isinstance(piece.text, str) for piece in turn.pieces)
    tools_of(body)
    settings_of(body)


def test_an_answer_is_told_part_by_part() -> None:
    parts: list[KeptPart] = [
        ThinkingPart("Hm."),
        ServerToolCallPart(id="1", server="builtin", name="time", arguments="{}"),
        ServerToolResultPart(call_id="1", text="noon"),
        TextPart("It is noon."),
        ToolCallPart(id="2", name="bell", arguments='{"times": 12}'),
    ]
    assert answer_pieces(parts) == [
        Piece("thinking", "Hm."),
        Piece("call", "{}", "builtin / time"),
        Piece("result", "noon"),
        Piece("text", "It is noon."),
        Piece("call", '{\n  "times": 12\n}', "bell"),
    ]


def test_an_upstream_s_own_answer_is_told_too() -> None:
    message = {"type": "message", "content": [{"type": "text", "text": "Hi"}]}
    assert answer_pieces([RawPart(json.dumps(message).encode())]) == [Piece("text", "Hi")]


def test_arguments_that_are_no_json_are_shown_as_they_are() -> None:
    (piece,) = answer_pieces([ToolCallPart(id="1", name="f", arguments='{"a": ')])
    assert piece.text == '{"a": '


def test_a_very_long_text_is_cut_and_says_so() -> None:
    ((_, [(_, text, _)]),) = said({"input": "x" * (SHOWN_CHARS + 1234)})
    assert text == "x" * SHOWN_CHARS + "\n… (1,234 characters more)"


def test_tools_are_told_in_every_shape() -> None:
    schema = {"type": "object"}
    body = {
        "tools": [
            {"name": "a", "description": "Does a.", "input_schema": schema},
            {"type": "function", "function": {"name": "b", "parameters": schema}},
            {"type": "function", "name": "c", "parameters": schema},
            {"type": "web_search_20250305", "name": "d"},
            {"type": "mcp"},
        ]
    }
    tools = tools_of(body)
    assert [tool.name for tool in tools] == ["a", "b", "c", "d", "mcp"]
    assert tools[0].description == "Does a."
    assert json.loads(tools[1].schema) == schema


def test_settings_are_what_is_neither_said_nor_offered() -> None:
    body = {"model": "m", "messages": [], "tools": [], "system": "x", "temperature": 0.5}
    assert json.loads(settings_of(body)) == {"model": "m", "temperature": 0.5}
