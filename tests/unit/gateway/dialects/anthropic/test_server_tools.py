"""Calls that the server ran: in streams, in messages, and when they are sent back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anthropic
import httpx2
import pytest

from gateway.dialects.anthropic.encode import MessageStream, message
from gateway.dialects.anthropic.parse import to_request
from gateway.dialects.anthropic.wire import decode_messages
from gateway.dialects.context import ParseContext
from inference.errors import TandemError
from inference.events import (
    Event,
    Finished,
    FinishReason,
    ServerToolCall,
    ServerToolResult,
    Started,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
)
from inference.fold import Answer, Parts
from inference.request import (
    Message,
    Role,
    ServerToolCallPart,
    ServerToolResultPart,
    TextPart,
    ToolChoice,
    ToolMode,
)

CONTEXT = ParseContext(request_id="r", model="m", deadline_s=1)
CALL_ID = "018f3c5e-0000-7000-8000-000000000001"
PUBLIC_ID = "mcptoolu_" + CALL_ID.replace("-", "")
CALL = ServerToolCall(id=CALL_ID, server="clock", name="now", arguments='{"zone":"UTC"}')
RESULT = ServerToolResult(call_id=CALL_ID, text="noon")
USE_BLOCK = {
    "type": "mcp_tool_use",
    "id": PUBLIC_ID,
    "name": "now",
    "server_name": "clock",
    "input": {"zone": "UTC"},
}
RESULT_BLOCK = {
    "type": "mcp_tool_result",
    "tool_use_id": PUBLIC_ID,
    "is_error": False,
    "content": [{"type": "text", "text": "noon"}],
}
CLIENT_CALL: list[Event] = [ToolCallStarted(id=CALL_ID, name="mine"), ToolCallDelta("{}")]


def _finished(reason: FinishReason = FinishReason.END) -> Finished:
    return Finished(reason=reason, usage=Usage(prompt_tokens=1, cached_tokens=0, output_tokens=1))


def _stream(*events: Event) -> list[dict[str, Any]]:
    encoder = MessageStream("msg_1", "m", "req_1")
    frames = b"".join(map(encoder.feed, [Started(prompt_tokens=1), *events]))
    lines = [line for line in frames.decode().splitlines() if line.startswith("data: ")]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def _message(*events: Any, reason: FinishReason = FinishReason.END) -> dict[str, Any]:
    parts = Parts()
    for event in events:
        parts.add(event)
    answer: Answer = parts.answer(_finished(reason))
    decoded: dict[str, Any] = json.loads(message(answer, "msg_1", "m"))
    return decoded


def test_a_stream_tells_each_block_whole_when_it_begins() -> None:
    told = _stream(TextDelta("Hm."), CALL, RESULT, TextDelta("Noon."), _finished())
    starts = [each for each in told if each["type"] == "content_block_start"]
    assert [(each["index"], each["content_block"]) for each in starts] == [
        (0, {"type": "text", "text": ""}),
        (1, USE_BLOCK),
        (2, RESULT_BLOCK),
        (3, {"type": "text", "text": ""}),
    ]
    kinds = [(each["type"], each.get("index")) for each in told[4:9]]
    assert kinds == [
        ("content_block_start", 1),
        ("content_block_stop", 1),
        ("content_block_start", 2),
        ("content_block_stop", 2),
        ("content_block_start", 3),
    ]


def test_bug_61_blocks_are_closed_before_the_next_begins() -> None:
    told = _stream(*CLIENT_CALL, CALL, RESULT, _finished(FinishReason.TOOL_USE))
    open_index = None
    for each in told:
        if each["type"] == "content_block_start":
            assert open_index is None
            open_index = each["index"]
        elif each["type"] == "content_block_stop":
            assert open_index == each["index"]
            open_index = None


def test_a_message_has_the_blocks_of_the_stream() -> None:
    content = _message(TextDelta("Hm."), CALL, RESULT, TextDelta("Noon."))["content"]
    assert content == [
        {"type": "text", "text": "Hm."},
        USE_BLOCK,
        RESULT_BLOCK,
        {"type": "text", "text": "Noon."},
    ]


def test_a_result_that_says_nothing_has_no_empty_text() -> None:
    silent = ServerToolResult(call_id=CALL_ID, text="", is_error=True)
    block = _message(CALL, silent)["content"][1]
    assert (block["content"], block["is_error"]) == ([], True)


def test_a_pause_is_told_as_one() -> None:
    assert _message(CALL, RESULT, reason=FinishReason.PAUSE)["stop_reason"] == "pause_turn"
    told = _stream(CALL, RESULT, _finished(FinishReason.PAUSE))
    assert told[-2]["delta"]["stop_reason"] == "pause_turn"


def test_a_call_that_was_left_to_the_server_keeps_the_id_that_it_was_sent_back_with() -> None:
    told = _stream(ServerToolResult(call_id="mcptoolu_x", text="noon"), _finished())
    assert told[1]["content_block"]["tool_use_id"] == "mcptoolu_x"


# Sent back.


def _body(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    turn = {"role": "user", "content": "When?"}
    return {"model": "m", "max_tokens": 5, "messages": [turn, *messages], **fields}


def _assistant(*content: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(content)}


def _refusal(*messages: dict[str, Any]) -> str:
    with pytest.raises(TandemError) as caught:
        decode_messages(_body(*messages))
    return caught.value.message


def test_what_was_told_can_be_sent_back() -> None:
    content = _message(TextDelta("Hm."), CALL, RESULT, TextDelta("Noon."))["content"]
    body = decode_messages(_body(_assistant(*content), {"role": "user", "content": "Ta."})).body
    assert to_request(body, CONTEXT).messages[1] == Message(
        role=Role.ASSISTANT,
        parts=(
            TextPart("Hm."),
            ServerToolCallPart(
                id=PUBLIC_ID, server="clock", name="now", arguments='{"zone":"UTC"}'
            ),
            ServerToolResultPart(call_id=PUBLIC_ID, text="noon"),
            TextPart("Noon."),
        ),
    )


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ("noon", "noon"),
        ([], ""),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
    ],
)
def test_a_result_may_be_text_or_blocks_of_text(content: Any, text: str) -> None:
    told = _assistant(USE_BLOCK, RESULT_BLOCK | {"content": content, "is_error": True})
    request = to_request(decode_messages(_body(told)).body, CONTEXT)
    expected = ServerToolResultPart(call_id=PUBLIC_ID, text=text, is_error=True)
    assert request.messages[1].parts[1] == expected


def test_a_paused_turn_may_stand_last_and_even_leave_a_call_to_the_server() -> None:
    decode_messages(_body(_assistant(USE_BLOCK, RESULT_BLOCK)))
    decode_messages(_body(_assistant(USE_BLOCK)))


def test_a_mixed_round_is_answered_by_the_caller_s_results_alone() -> None:
    own = {"type": "tool_use", "id": "toolu_1", "name": "mine", "input": {}}
    answer = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok"}
    decode_messages(
        _body(_assistant(own, USE_BLOCK, RESULT_BLOCK), {"role": "user", "content": [answer]})
    )


@pytest.mark.parametrize(
    ("messages", "path"),
    [
        ([_assistant(RESULT_BLOCK)], "messages.1.content.0.tool_use_id"),
        ([_assistant(USE_BLOCK, RESULT_BLOCK, RESULT_BLOCK)], "messages.1.content.2.tool_use_id"),
        ([_assistant(USE_BLOCK, USE_BLOCK)], "messages.1.content.1.id"),
        ([_assistant(USE_BLOCK), {"role": "user", "content": "?"}], "messages.1.content.0"),
        ([{"role": "user", "content": [USE_BLOCK]}], "messages.1.content.0"),
        ([_assistant(USE_BLOCK | {"server_name": 1})], "messages.1.content.0.server_name"),
    ],
)
def test_blocks_that_do_not_fit_together_are_refused_by_their_path(
    messages: list[dict[str, Any]], path: str
) -> None:
    assert _refusal(*messages).startswith(f"{path}: ")


def test_a_tool_that_the_server_runs_may_be_demanded() -> None:
    body = decode_messages(_body(tool_choice={"type": "tool", "name": "now"})).body
    request = to_request(body, ParseContext(**_with_servers()))
    assert request.tool_choice == ToolChoice(mode=ToolMode.NAMED, name="now")
    assert request.can_pause
    with pytest.raises(TandemError, match="not found in provided tools"):
        to_request(body, CONTEXT)


def _with_servers() -> dict[str, Any]:
    return {"request_id": "r", "model": "m", "deadline_s": 1.0, "server_tools": True}


@contextmanager
def _sdk(content: bytes, content_type: str) -> Iterator[anthropic.Anthropic]:
    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, content=content, headers={"content-type": content_type})

    transport = httpx2.MockTransport(answer)
    with httpx2.Client(transport=transport) as client:
        yield anthropic.Anthropic(api_key="k", base_url="http://test", http_client=client)


@pytest.mark.parametrize("beta", [False, True])
def test_both_of_the_sdk_s_accumulators_keep_the_input(*, beta: bool) -> None:
    """The one that is not beta folds no input of these blocks from deltas (contracts 12)."""
    encoder = MessageStream("msg_1", "m", "req_1")
    events: list[Event] = [Started(prompt_tokens=1), CALL, RESULT, TextDelta("Noon."), _finished()]
    frames = b"".join(map(encoder.feed, events))
    turn: Any = {"role": "user", "content": "When?"}
    with _sdk(frames, "text/event-stream") as client:
        messages: Any = client.beta.messages if beta else client.messages
        with messages.stream(model="m", max_tokens=5, messages=[turn]) as stream:
            told = stream.get_final_message()
    use, result, text = told.content
    assert (use.type, use.input, use.server_name) == ("mcp_tool_use", {"zone": "UTC"}, "clock")
    assert (result.type, result.tool_use_id) == ("mcp_tool_result", use.id)
    assert text.text == "Noon."
    back = [block.model_dump(exclude_none=True) for block in told.content]
    decode_messages(_body({"role": "assistant", "content": back}))
