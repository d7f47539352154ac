"""Calls that the server ran leave no trace in Chat but the answer that was made of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.dialects.chat.encode import ChunkStream, Shape, completion
from gateway.serving.choices import Chosen
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
from inference.fold import Parts

SHAPE = Shape(completion_id="chatcmpl-r1", model="m", created_s=1)
CALL_ID = "0f8a1c2e-0000-4000-8000-00000000000a"
RAN: list[Event] = [
    ServerToolCall(id=CALL_ID, server="clock", name="now", arguments="{}"),
    ServerToolResult(call_id=CALL_ID, text="noon"),
]
OWN: list[Event] = [ToolCallStarted(id=CALL_ID, name="mine"), ToolCallDelta("{}")]


def _end(reason: FinishReason = FinishReason.END) -> Finished:
    return Finished(reason=reason, usage=Usage(prompt_tokens=1, cached_tokens=0, output_tokens=1))


def _streamed(events: list[Event], end: Finished) -> dict[str, Any]:
    """Return what a client folds of the stream."""
    stream = ChunkStream(SHAPE)
    frames = b"".join(stream.feed(Chosen(0, event)) for event in [Started(1), *events, end])
    chunks = [
        json.loads(line.removeprefix("data: "))
        for line in frames.decode().splitlines()
        if line.startswith("data: {")
    ]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    text = "".join(delta.get("content") or "" for delta in deltas)
    calls = [call for delta in deltas for call in delta.get("tool_calls") or ()]
    reason = chunks[-1]["choices"][0]["finish_reason"]
    return {
        "content": text,
        "names": [call["function"]["name"] for call in calls if call.get("id")],
        "finish_reason": reason,
    }


def _whole(events: list[Event], end: Finished) -> dict[str, Any]:
    parts = Parts()
    for event in events:
        parts.add(event)  # type: ignore[arg-type]
    choice = json.loads(completion([parts.answer(end)], SHAPE))["choices"][0]
    said = choice["message"]
    return {
        "content": said["content"] or "",
        "names": [call["function"]["name"] for call in said.get("tool_calls") or ()],
        "finish_reason": choice["finish_reason"],
    }


@pytest.mark.parametrize(
    ("events", "reason", "expected"),
    [
        ([*RAN, TextDelta("Noon.")], FinishReason.END, ("Noon.", [], "stop")),
        (
            [TextDelta("Let me "), TextDelta("see."), *RAN, *RAN, TextDelta("It is "), *RAN],
            FinishReason.END,
            ("Let me see.\n\nIt is ", [], "stop"),
        ),
        (
            [TextDelta("Hm."), *RAN, TextDelta("Noon"), TextDelta(".")],
            FinishReason.LENGTH,
            ("Hm.\n\nNoon.", [], "length"),
        ),
        ([*OWN, *RAN], FinishReason.TOOL_USE, ("", ["mine"], "tool_calls")),
    ],
)
def test_a_stream_and_a_completion_say_the_same(
    events: list[Event], reason: FinishReason, expected: tuple[str, list[str], str]
) -> None:
    content, names, finish_reason = expected
    wanted = {"content": content, "names": names, "finish_reason": finish_reason}
    assert _streamed(events, _end(reason)) == wanted
    assert _whole(events, _end(reason)) == wanted
