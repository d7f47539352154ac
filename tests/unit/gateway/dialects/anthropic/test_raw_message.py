"""What an upstream said, as the trail shows it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from anthropic.types import Message

from gateway.dialects.anthropic.raw_message import as_message
from tests.raw_messages import ERROR_FRAME, MESSAGE, REST, START, STREAM


def frames(*events: dict[str, Any]) -> bytes:
    return b"".join(b"data: %b\r\n\r\n" % json.dumps(event).encode() for event in events)


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": each} for each in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def test_a_whole_message_is_shown_as_it_is() -> None:
    assert as_message(MESSAGE) == json.loads(MESSAGE)


def test_a_stream_is_put_together() -> None:
    shown = as_message(b"".join(STREAM))
    assert shown["content"] == [
        {"type": "text", "text": 'üü model "@@"'},
        {"type": "hologram", "depth": 123456789012345678901234567890},
    ]
    assert (shown["id"], shown["stop_reason"]) == ("msg_01Upstream", "end_turn")
    assert shown["usage"]["output_tokens"] == 7
    assert shown["usage"]["input_tokens"] == 11


def test_every_kind_of_block_is_put_together() -> None:
    shown = as_message(
        START.replace(b"@@", b"m")
        + frames(
            *block(
                0,
                {"type": "thinking", "thinking": "", "signature": ""},
                {"type": "thinking_delta", "thinking": "h"},
                {"type": "thinking_delta", "thinking": "m"},
                {"type": "signature_delta", "signature": "Eq"},
            ),
            *block(
                1,
                {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}},
                {"type": "input_json_delta", "partial_json": '{"a"'},
                {"type": "input_json_delta", "partial_json": ":1}"},
            ),
            *block(
                2,
                {"type": "text", "text": "", "citations": None},
                {"type": "citations_delta", "citation": {"cited_text": "x"}},
                {"type": "text_delta", "text": "y"},
            ),
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {}},
        )
    )
    assert shown["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "Eq"},
        {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}},
        {"type": "text", "text": "y", "citations": [{"cited_text": "x"}]},
    ]
    assert Message.model_validate(shown | {"content": shown["content"][:2]}).model == "m"


def test_what_was_broken_off_is_shown_as_far_as_it_came() -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}
    piece = {"type": "input_json_delta", "partial_json": '{"a": "unfin'}
    shown = as_message(START + frames(*block(0, call, piece)[:2]) + REST[0][:20])
    assert shown["content"] == [call | {"input": '{"a": "unfin'}]
    assert shown["stop_reason"] is None


def test_an_error_in_a_stream_is_shown() -> None:
    shown = as_message(START + ERROR_FRAME)
    assert shown["error"]["type"] == "overloaded_error"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"data: \xff\n\n",
        b"data: [1]\n\n",
        frames({"type": 1}, {"type": "message_start", "message": 5}),
        frames({"type": "content_block_delta", "index": "0", "delta": {}}),
        frames({"type": "message_delta", "delta": 5, "usage": []}),
    ],
)
def test_what_cannot_be_read_is_left_out(data: bytes) -> None:
    assert as_message(data).get("content", []) == []


def test_a_piece_of_another_kind_than_what_is_there_is_left_out() -> None:
    odd = {"type": "text", "text": 5, "citations": 1}
    deltas = ({"text": "x"}, {"type": "citations_delta", "citation": 2})
    assert as_message(frames(*block(0, odd, *deltas)))["content"] == [odd | {"citations": [2]}]
