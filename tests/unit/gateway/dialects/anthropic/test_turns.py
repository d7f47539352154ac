"""Blocks as parts, images and their placeholders, and the last cache breakpoint."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gateway.dialects.anthropic.parse import image_sources, to_request
from gateway.dialects.anthropic.wire import MessagesBody, decode_messages
from gateway.dialects.context import ParseContext
from gateway.dialects.placeholder import NOTICE, OMITTED, REMINDER
from gateway.image_source import ImageSource
from inference.errors import ErrorCode, TandemError
from inference.request import (
    CacheMark,
    GenerationRequest,
    ImagePart,
    Message,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)

BLIND = ParseContext(request_id="r", model="m", deadline_s=1)
SEEING = replace(BLIND, vision=True)

EMBEDDED = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
LINKED = {"type": "url", "url": "https://example.com/a.png"}
MARK = {"cache_control": {"type": "ephemeral"}}
FIRST, SECOND = ImagePart("image/png", b"1"), ImagePart("image/jpeg", b"2")


def text(value: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, **fields}


def image(source: dict[str, Any]) -> dict[str, Any]:
    return {"type": "image", "source": source}


def call(call_id: str, **fields: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "f", "input": {"b": 1, "a": "é"}, **fields}


def result(call_id: str, content: Any = "ok", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **fields}


def turn(role: str, *content: Any) -> dict[str, Any]:
    return {"role": role, "content": list(content)}


def body_of(*messages: dict[str, Any], **fields: Any) -> MessagesBody:
    obj = {"model": "m", "max_tokens": 5, "messages": list(messages), **fields}
    return decode_messages(obj).body


def parse(*messages: dict[str, Any], **fields: Any) -> GenerationRequest:
    return to_request(body_of(*messages, **fields), BLIND)


def test_every_block_is_its_part() -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "x"}
    request = parse(
        turn("user", text("a", citations=[])),
        turn("assistant", thought, text("b"), call("toolu_1")),
        turn("user", result("toolu_1", [text("c"), text("d")], is_error=True), text("e")),
    )
    assert request.messages == (
        Message(role=Role.USER, parts=(TextPart("a"),)),
        Message(
            role=Role.ASSISTANT,
            parts=(
                ThinkingPart("hm"),
                TextPart("b"),
                ToolCallPart(id="toolu_1", name="f", arguments='{"b":1,"a":"é"}'),
            ),
        ),
        Message(
            role=Role.USER,
            parts=(
                ToolResultPart(
                    call_id="toolu_1", parts=(TextPart("c"), TextPart("d")), is_error=True
                ),
                TextPart("e"),
            ),
        ),
    )


@pytest.mark.parametrize("content", [None, "", []])
def test_a_result_may_be_silent(content: Any) -> None:
    request = parse(turn("assistant", call("x")), turn("user", result("x", content)))
    assert request.messages[1].parts == (ToolResultPart(call_id="x", parts=()),)


def test_bug_18_thinking_is_given_back_as_reasoning() -> None:
    request = parse(turn("assistant", {"type": "thinking", "thinking": "hm"}, text("a")))
    assert request.messages[0].parts == (ThinkingPart("hm"), TextPart("a"))


def test_what_nobody_can_read_is_left_out_and_so_is_a_turn_of_nothing_else() -> None:
    redacted, blank = {"type": "redacted_thinking"}, {"type": "thinking", "thinking": ""}
    request = parse(
        turn("user", text("a")),
        turn("assistant", redacted, blank),
        turn("user", text("b")),
        turn("assistant"),
    )
    assert request.messages == (Message(role=Role.USER, parts=(TextPart("a"), TextPart("b"))),)


def test_bug_25_results_come_first_in_their_turn() -> None:
    request = parse(
        turn("assistant", call("x"), call("y")),
        turn("user", text("a"), result("y", **MARK)),
        turn("user", result("x"), text("b")),
    )
    kinds = [type(part).__name__ for part in request.messages[1].parts]
    assert kinds == ["ToolResultPart", "ToolResultPart", "TextPart", "TextPart"]
    assert request.cache_mark == CacheMark(message=1, part=0)


def test_a_found_tool_is_named() -> None:
    found = {"type": "tool_reference", "tool_name": "f"}
    request = parse(
        turn("assistant", call("x")),
        turn("user", result("x", [found])),
        tools=[{"name": "f", "input_schema": {}}],
    )
    assert request.messages[1].parts == (
        ToolResultPart(call_id="x", parts=(TextPart("[tool found: f]"),)),
    )


PICTURES = [
    turn("user", text("a"), image(EMBEDDED)),
    turn("assistant", call("x")),
    turn("user", result("x", [text("shot"), image(LINKED)]), text("b")),
]


def test_it_says_where_images_come_from_without_reading_them() -> None:
    assert image_sources(body_of(*PICTURES)) == [
        ImageSource(
            path="messages.0.content.1.source", media_type="image/png", data="iVBORw0KGgo="
        ),
        ImageSource(path="messages.2.content.0.content.1.source", url="https://example.com/a.png"),
    ]


def test_bug_19_and_20_images_reach_a_model_that_sees_in_their_places() -> None:
    request = to_request(body_of(*PICTURES), SEEING, [FIRST, SECOND])
    assert request.messages[0].parts == (TextPart("a"), FIRST)
    assert request.messages[2].parts == (
        ToolResultPart(call_id="x", parts=(TextPart("shot"), SECOND)),
        TextPart("b"),
    )


@pytest.mark.parametrize("images", [(), (FIRST,), (FIRST, SECOND, FIRST)])
def test_other_images_than_the_bodys_are_a_mistake(images: tuple[ImagePart, ...]) -> None:
    with pytest.raises(ValueError, match="not those that the body names"):
        to_request(body_of(*PICTURES), SEEING, images)


def test_a_model_without_vision_is_told_of_every_image_where_it_stood() -> None:
    request = to_request(body_of(*PICTURES, system="Be brief."), BLIND)
    assert request.messages[0].parts == (TextPart(f"Be brief.\n{NOTICE}"),)
    assert request.messages[1].parts == (TextPart("a"), OMITTED, REMINDER)
    assert request.messages[3].parts == (
        ToolResultPart(call_id="x", parts=(TextPart("shot"), OMITTED)),
        TextPart("b"),
        REMINDER,
    )
    assert OMITTED.text == "[image omitted: this model has no vision]"


def test_a_later_turn_leaves_the_text_before_it_as_it_was() -> None:
    earlier = parse(*PICTURES).messages
    later = parse(*PICTURES, turn("assistant", text("c")), turn("user", image(LINKED))).messages
    assert later[: len(earlier)] == earlier


def test_without_images_nothing_is_said_of_vision() -> None:
    assert parse(turn("user", text("a"))).messages == (
        Message(role=Role.USER, parts=(TextPart("a"),)),
    )


def test_a_model_may_be_set_to_refuse_images() -> None:
    context = replace(BLIND, images_without_vision="refuse")
    to_request(body_of(turn("user", text("a"))), context)
    with pytest.raises(TandemError) as caught:
        to_request(body_of(*PICTURES), context)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert caught.value.message == (
        "messages.0.content.1: model 'm' has no vision; remove the image or use another"
    )


TOOL = {"name": "f", "input_schema": {}}
TURNS = [
    turn("user", text("a"), text("b")),
    turn("assistant", text("c")),
    turn("user", text("d")),
]


def marked(message: int, block: int) -> list[dict[str, Any]]:
    turns = [dict(turn) for turn in TURNS]
    content = [dict(block) for block in turns[message]["content"]]
    content[block] |= MARK
    turns[message]["content"] = content
    return turns


@pytest.mark.parametrize(
    ("messages", "fields", "mark"),
    [
        (TURNS, {}, None),
        (TURNS, {"tools": [TOOL | MARK, TOOL | {"name": "g"}]}, CacheMark(message=-1, part=0)),
        (TURNS, {"tools": [{"type": "bash_20250124"} | MARK]}, None),
        (TURNS, {"system": [text("s", **MARK), text("t")]}, CacheMark(message=0, part=0)),
        (
            TURNS,
            {"system": [text("s", **MARK)], "tools": [TOOL | MARK]},
            CacheMark(message=0, part=0),
        ),
        (marked(0, 0), {}, CacheMark(message=0, part=0)),
        (marked(0, 1), {"system": [text("s", **MARK)]}, CacheMark(message=1, part=1)),
        (marked(1, 0), {"tools": [TOOL | MARK]}, CacheMark(message=1, part=0)),
        (marked(0, 0), MARK, CacheMark(message=2, part=0)),
        (TURNS, MARK | {"system": "s"}, CacheMark(message=3, part=0)),
    ],
)
def test_the_last_breakpoint_in_the_prompts_order_counts(
    messages: list[dict[str, Any]], fields: dict[str, Any], mark: CacheMark | None
) -> None:
    assert parse(*messages, **fields).cache_mark == mark


@pytest.mark.parametrize(
    "content", [result("x", **MARK), result("x", [text("a"), text("b", **MARK)])]
)
def test_a_breakpoint_inside_a_result_stands_for_all_of_it(content: dict[str, Any]) -> None:
    request = parse(turn("assistant", call("x")), turn("user", content, text("c")))
    assert request.cache_mark == CacheMark(message=1, part=0)


def test_breakpoints_move_along_when_turns_are_merged() -> None:
    turns = [turn("user", text("a")), turn("user", text("b"), text("c", **MARK)), *TURNS[1:]]
    assert parse(*turns).cache_mark == CacheMark(message=0, part=2)


def test_a_breakpoint_on_the_billing_header_marks_nothing() -> None:
    header = text("x-anthropic-billing-header: cch=1;", **MARK)
    assert parse(*TURNS, system=[header]).cache_mark is None
