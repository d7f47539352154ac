"""Content blocks: which ones are read, and the words for those that are not."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.dialects.anthropic.blocks import ImageBlock, ToolResultBlock
from gateway.dialects.anthropic.wire import MessagesBody, decode_messages
from inference.errors import TandemError

CALL = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}
PNG = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
}
LINKED = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
MARK = {"cache_control": {"type": "ephemeral", "ttl": "5m"}}


def read(*messages: dict[str, Any]) -> MessagesBody:
    return decode_messages({"model": "m", "max_tokens": 5, "messages": list(messages)}).body


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def assistant(*content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(content)}


def result(content: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "toolu_1", "content": content, **fields}


def refusal(*messages: dict[str, Any]) -> str:
    with pytest.raises(TandemError) as caught:
        read(*messages)
    return caught.value.message


@pytest.mark.parametrize(
    "kind",
    [
        "document",
        "search_result",
        "server_tool_use",
        "web_search_tool_result",
        "container_upload",
        "compaction",
        "tool_reference",
        "é {x}",
    ],
)
def test_it_refuses_a_block_that_it_cannot_show_the_model(kind: str) -> None:
    text = {"type": "text", "text": "a"}
    assert refusal(user(text, {"type": kind})) == (
        f"messages.0.content.1: Unsupported content block type: '{kind}'"
    )


def test_it_refuses_a_document_inside_a_tools_result() -> None:
    assert refusal(assistant(CALL), user(result([{"type": "document"}]))) == (
        "messages.1.content.0.content.0: Unsupported content block type: 'document'"
    )


def test_the_system_prompt_is_text_only() -> None:
    with pytest.raises(TandemError, match=r"^system.0: Unsupported content block type: 'image'$"):
        decode_messages({"model": "m", "max_tokens": 5, "messages": [user(PNG)], "system": [PNG]})


REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"type": "image"}, "source: Field required"),
    ({"type": "image", "source": 5}, "source: Input should be an object"),
    ({"type": "image", "source": {}}, "source.type: Field required"),
    (
        {"type": "image", "source": {"type": "file", "file_id": "f"}},
        "source: Unsupported image source type: 'file'; send the image as `base64` or `url`",
    ),
    (
        {"type": "image", "source": {"type": "base64", "data": "eA=="}},
        "source.media_type: Field required",
    ),
    (
        {"type": "image", "source": {"type": "base64", "media_type": "image/bmp", "data": "eA=="}},
        "source.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'",
    ),
    (
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}},
        "source.data: String should have at least 1 character",
    ),
    ({"type": "image", "source": {"type": "url"}}, "source.url: Field required"),
    ({"type": "tool_result"}, "tool_use_id: Field required"),
    ({"type": "tool_result", "tool_use_id": 5}, "tool_use_id: Input should be a valid string"),
    (result(5), "content: Input should be a string or a list of content blocks"),
    (
        result([{"type": "text", "text": ""}]),
        "content.0.text: text content blocks must be non-empty",
    ),
    (result("a", is_error="no"), "is_error: Input should be a valid boolean"),
    ({"type": "text", "text": "a", "cache_control": 1}, "cache_control: Input should be an object"),
    (
        {"type": "text", "text": "a", "cache_control": {"type": "ephemeral", "ttl": 5}},
        "cache_control.ttl: Input should be '5m' or '1h'",
    ),
    ({"type": "tool_use", "id": "x", "name": "f"}, "input: Field required"),
    (CALL | {"input": "{}"}, "input: Input should be a valid dictionary"),
    (CALL | {"id": ""}, "id: String should have at least 1 character"),
    ({"type": "thinking"}, "thinking: Field required"),
]


@pytest.mark.parametrize(("block", "message"), REFUSALS, ids=[message for _, message in REFUSALS])
def test_it_refuses_a_wrong_field_of_a_block_by_its_path(
    block: dict[str, Any], message: str
) -> None:
    assert refusal(user(block)) == f"messages.0.content.0.{message}"


def test_it_reads_every_block_that_carries_a_cache_breakpoint() -> None:
    body = read(
        user({"type": "text", "text": "a", "citations": [], **MARK}, PNG | MARK),
        assistant(CALL | MARK),
        user(result("ok", **MARK)),
    )
    assert all("cache_control" in block.model_fields_set for block in body.messages[0].content)


def test_it_accepts_more_breakpoints_than_anthropic_does() -> None:
    read(user(*[{"type": "text", "text": "a", **MARK}] * 9))


@pytest.mark.parametrize("content", [None, "", "text", [], [{"type": "text", "text": "a"}]])
def test_a_result_may_be_a_string_or_blocks_or_nothing(content: Any) -> None:
    read(assistant(CALL), user(result(content)))


def test_a_result_may_lack_its_content() -> None:
    read(assistant(CALL), user({"type": "tool_result", "tool_use_id": "toolu_1"}))


def test_bug_19_images_inside_a_result_are_read() -> None:
    block = read(assistant(CALL), user(result([PNG, LINKED]))).messages[1].content[0]
    assert isinstance(block, ToolResultBlock)
    assert [type(inner) for inner in block.content or ()] == [ImageBlock, ImageBlock]


@pytest.mark.parametrize("signature", ["", "EqQB", None, 5])
def test_bug_17_thinking_is_accepted_whatever_its_signature(signature: Any) -> None:
    read(assistant({"type": "thinking", "thinking": "hm", "signature": signature}))


def test_redacted_thinking_is_accepted_beside_other_blocks() -> None:
    redacted = {"type": "redacted_thinking", "data": "x"}
    read(assistant(redacted, {"type": "text", "text": "a"}))


def test_unknown_fields_of_a_block_are_let_through() -> None:
    read(assistant(CALL | {"caller": {"type": "direct"}}), user(result("a", clear_at="never")))
