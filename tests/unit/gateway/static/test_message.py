"""Messages and conversations as the playground puts them together."""

from __future__ import annotations

from typing import Any

from gateway.dialects.anthropic.encode import MessageStream
from inference.events import (
    Event,
    Finished,
    FinishReason,
    ServerToolCall,
    ServerToolResult,
    Started,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
)
from tests.scripts import Scripts
from tests.unit.gateway.static.streams import told

_FOLD = """
const message = new m.Message();
const changes = events.map((event) => message.add(event));
const { content, usage, stopReason, error, id, turn, calls } = message;
return { content, usage, stopReason, error, id, turn, calls, changes };
"""
USAGE = Usage(prompt_tokens=9, cached_tokens=4, output_tokens=7)


def fold(scripts: Scripts, *events: Event) -> dict[str, Any]:
    stream = MessageStream("msg_1", "tiny", "req_1")
    frames = b"".join(stream.feed(event) for event in events)
    folded: dict[str, Any] = scripts.run("message.js", _FOLD, events=told(frames))
    return folded


def end(reason: FinishReason = FinishReason.END) -> Finished:
    return Finished(reason=reason, usage=USAGE)


def test_a_stream_becomes_the_message_that_it_tells(scripts: Scripts) -> None:
    found = fold(
        scripts,
        Started(prompt_tokens=9),
        ThinkingDelta("Hm"),
        ThinkingDelta("."),
        ServerToolCall(id="1", server="builtin", name="time", arguments="{}"),
        ServerToolResult(call_id="1", text="noon", is_error=False),
        TextDelta("It is "),
        TextDelta("noon."),
        end(),
    )
    kinds = [block["type"] for block in found["content"]]
    assert kinds == ["thinking", "mcp_tool_use", "mcp_tool_result", "text"]
    assert found["content"][0]["thinking"] == "Hm."
    assert found["content"][3]["text"] == "It is noon."
    assert (found["id"], found["stopReason"]) == ("msg_1", "end_turn")
    assert found["usage"]["cache_read_input_tokens"] == 4
    assert found["turn"] == {"role": "assistant", "content": found["content"]}


def test_a_call_s_arguments_are_read_at_its_end(scripts: Scripts) -> None:
    found = fold(
        scripts,
        Started(prompt_tokens=9),
        ToolCallStarted(id="1", name="weather"),
        ToolCallDelta('{"city": '),
        ToolCallDelta('"Bonn"}'),
        ToolCallStarted(id="2", name="time"),
        end(FinishReason.TOOL_USE),
    )
    assert [call["input"] for call in found["calls"]] == [{"city": "Bonn"}, {}]
    assert found["stopReason"] == "tool_use"


def test_pieces_are_told_as_they_come(scripts: Scripts) -> None:
    found = fold(scripts, Started(prompt_tokens=9), TextDelta("a"), TextDelta("b"), end())
    texts = [change["text"] for change in found["changes"] if change and change["kind"] == "text"]
    assert texts == ["a", "b"]


def test_of_an_answer_that_was_broken_off_only_its_text_is_sent_back(scripts: Scripts) -> None:
    found = fold(
        scripts,
        Started(prompt_tokens=9),
        ThinkingDelta("Hm."),
        TextDelta("It is"),
        ToolCallStarted(id="1", name="weather"),
        ToolCallDelta('{"city": '),
    )
    assert found["turn"] == {"role": "assistant", "content": [{"type": "text", "text": "It is"}]}


def test_an_answer_without_text_that_was_broken_off_is_no_turn(scripts: Scripts) -> None:
    assert fold(scripts, Started(prompt_tokens=9), ThinkingDelta("Hm."))["turn"] is None


def test_an_error_at_the_end_is_told(scripts: Scripts) -> None:
    error = {"type": "overloaded_error", "message": "no place"}
    found = scripts.run("message.js", _FOLD, events=[{"type": "error", "error": error}])
    assert found["error"] == error


_TALK = """
const conversation = new m.Conversation();
conversation.turns = turns;
return { next: conversation.with(turn), text: conversation.takeBack(), left: conversation.turns };
"""
ASKED = {"role": "user", "content": "What is the weather?"}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}
NEXT = {"role": "user", "content": "Never mind."}


def test_calls_that_are_not_answered_are_left_out(scripts: Scripts) -> None:
    text = {"type": "text", "text": "I look."}
    answer = {"role": "assistant", "content": [text, CALL]}
    found = scripts.run("conversation.js", _TALK, turns=[ASKED, answer], turn=NEXT)
    assert found["next"] == [ASKED, {"role": "assistant", "content": [text]}, NEXT]


def test_an_answer_of_calls_alone_goes_with_its_question(scripts: Scripts) -> None:
    answer = {"role": "assistant", "content": [CALL]}
    found = scripts.run("conversation.js", _TALK, turns=[ASKED, answer], turn=NEXT)
    assert found["next"] == [NEXT]


def test_results_keep_their_calls(scripts: Scripts) -> None:
    answer = {"role": "assistant", "content": [CALL]}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "rain"}
    turn = {"role": "user", "content": [result]}
    found = scripts.run("conversation.js", _TALK, turns=[ASKED, answer], turn=turn)
    assert found["next"] == [ASKED, answer, turn]


def test_a_turn_without_an_answer_is_taken_back(scripts: Scripts) -> None:
    found = scripts.run("conversation.js", _TALK, turns=[ASKED], turn=NEXT)
    assert (found["text"], found["left"]) == ("What is the weather?", [])
