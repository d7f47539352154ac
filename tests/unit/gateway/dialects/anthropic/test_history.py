"""What must hold between the blocks of a conversation."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.dialects.anthropic.wire import decode_messages
from inference.errors import TandemError

TEXT = {"type": "text", "text": "a"}
REDACTED = {"type": "redacted_thinking", "data": "x"}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": ""}


def call(call_id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "f", "input": {}}


def result(call_id: str, content: Any = "ok") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


def turn(role: str, *content: Any) -> dict[str, Any]:
    return {"role": role, "content": list(content)}


def read(*messages: dict[str, Any], **fields: Any) -> None:
    decode_messages({"model": "m", "max_tokens": 5, "messages": list(messages), **fields})


def refusal(*messages: dict[str, Any], **fields: Any) -> str:
    with pytest.raises(TandemError) as caught:
        read(*messages, **fields)
    return caught.value.message


@pytest.mark.parametrize(
    "messages",
    [
        [turn("assistant", call("x")), turn("user", result("x"))],
        [turn("user", TEXT), turn("assistant", TEXT, call("x")), turn("user", result("x"), TEXT)],
        [turn("assistant", call("x"), call("y")), turn("user", result("y"), result("x"))],
        [turn("assistant", call("x")), turn("user", TEXT, result("x"))],
        [turn("assistant", call("x")), turn("user", TEXT), turn("user", result("x"))],
        [turn("assistant", call("x")), turn("assistant", TEXT), turn("user", result("x"))],
        [turn("assistant", call("x")), turn("system", TEXT), turn("user", result("x"))],
        [turn("assistant", TEXT, THOUGHT, call("x")), turn("user", result("x"))],
    ],
)
def test_calls_that_the_next_user_turn_answers_are_right(messages: list[dict[str, Any]]) -> None:
    read(*messages)


@pytest.mark.parametrize(
    "messages",
    [
        [turn("user", TEXT), turn("assistant", TEXT, call("x"), call("y"))],
        [turn("user", TEXT), turn("assistant", TEXT, call("x"), call("y")), turn("user", TEXT)],
    ],
)
def test_bug_32_a_call_without_a_result_is_named_with_its_place(
    messages: list[dict[str, Any]],
) -> None:
    assert refusal(*messages) == (
        "messages.1.content.1: `tool_use` ids were found without `tool_result` blocks immediately "
        "after: x, y. Each `tool_use` block must have a corresponding `tool_result` block in the "
        "next message."
    )


def test_a_result_must_come_in_the_very_next_user_turn() -> None:
    late = [turn("user", TEXT), turn("assistant", TEXT), turn("user", result("x"))]
    assert "without `tool_result` blocks" in refusal(turn("assistant", call("x")), *late)


@pytest.mark.parametrize(
    "messages",
    [
        [turn("user", result("z"))],
        [turn("assistant", TEXT), turn("user", result("z"))],
        [turn("assistant", call("x")), turn("user", result("z"), result("x"))],
        [
            turn("assistant", call("z")),
            turn("user", result("z")),
            turn("assistant", TEXT),
            turn("user", result("z")),
        ],
    ],
)
def test_bug_32_a_result_without_its_call_is_named_with_its_place(
    messages: list[dict[str, Any]],
) -> None:
    assert refusal(*messages) == (
        f"messages.{len(messages) - 1}.content.0.tool_use_id: unexpected `tool_use_id` found in "
        "`tool_result` blocks: z. Each `tool_result` block must have a corresponding `tool_use` "
        "block in the previous message."
    )


def test_a_second_result_of_one_call_is_named() -> None:
    assert refusal(
        turn("assistant", call("x")), turn("user", result("x")), turn("user", TEXT, result("x"))
    ) == (
        "messages.2.content.1.tool_use_id: each `tool_use` must have a single result. Found "
        "multiple `tool_result` blocks with id: x"
    )


@pytest.mark.parametrize(
    ("messages", "path"),
    [
        ([turn("assistant", call("x"), call("x"))], "messages.0.content.1.id"),
        (
            [turn("assistant", call("x")), turn("user", result("x")), turn("assistant", call("x"))],
            "messages.2.content.0.id",
        ),
    ],
)
def test_a_second_call_with_one_id_is_named(messages: list[dict[str, Any]], path: str) -> None:
    assert refusal(*messages) == f"{path}: `tool_use` ids must be unique: x"


@pytest.mark.parametrize(
    ("role", "block", "wanted"),
    [
        ("user", call("x"), "assistant"),
        ("system", call("x"), "assistant"),
        ("assistant", result("x"), "user"),
        ("user", THOUGHT, "assistant"),
        ("user", REDACTED, "assistant"),
        (
            "assistant",
            {"type": "image", "source": {"type": "url", "url": "https://a/b.png"}},
            "user",
        ),
    ],
)
def test_a_block_in_the_wrong_role_is_named(role: str, block: dict[str, Any], wanted: str) -> None:
    kind = block["type"]
    assert refusal(turn(role, TEXT, block)) == (
        f"messages.0.content.1: `{kind}` blocks can only be in `{wanted}` messages"
    )


def test_only_a_last_assistant_turn_may_be_empty() -> None:
    empty = turn("assistant")
    read(turn("user", TEXT), empty)
    message = "message content must be non-empty"
    assert refusal(turn("user")) == f"messages.0.content: {message}"
    assert refusal(turn("user", TEXT), empty, turn("user", TEXT)) == (
        f"messages.1.content: {message}"
    )


@pytest.mark.parametrize("content", [[], [REDACTED], [THOUGHT | {"thinking": ""}]])
def test_a_conversation_that_says_nothing_is_refused(content: list[dict[str, Any]]) -> None:
    assert refusal(turn("assistant", *content)) == "messages: at least one message is required"


def test_a_reference_must_name_a_tool_of_the_request() -> None:
    found = {"type": "tool_reference", "tool_name": "g"}
    messages = [turn("assistant", call("x")), turn("user", result("x", [TEXT, found]))]
    read(*messages, tools=[{"name": "g", "input_schema": {}, "defer_loading": True}])
    assert refusal(*messages) == (
        "messages.1.content.0.content.1.tool_name: Tool reference 'g' not found in provided tools"
    )
