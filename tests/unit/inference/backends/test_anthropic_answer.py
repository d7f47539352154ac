"""From the events of a message to events, oddities of servers included."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from inference.backends.anthropic_answer import MessageAnswer
from inference.backends.port import Tally
from inference.backends.upstream_health import UpstreamError
from inference.events import (
    Event,
    Finished,
    FinishReason,
    Started,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
)
from tests.contracts.requests import make_request

Frame = dict[str, Any]


def start(**usage: Any) -> Frame:
    return {"type": "message_start", "message": {"usage": usage}}


def block(index: int, **content: Any) -> Frame:
    return {"type": "content_block_start", "index": index, "content_block": content}


def delta(index: int, **fields: Any) -> Frame:
    return {"type": "content_block_delta", "index": index, "delta": fields}


def stop(index: int) -> Frame:
    return {"type": "content_block_stop", "index": index}


def end(reason: str | None = "end_turn", sequence: str | None = None, **usage: Any) -> Frame:
    told = {"stop_reason": reason, "stop_sequence": sequence}
    return {"type": "message_delta", "delta": told, "usage": usage}


TEXT = (
    block(0, type="text", text=""),
    delta(0, type="text_delta", text="Hel"),
    delta(0, type="text_delta", text="lo."),
    stop(0),
)


def read(*frames: object) -> list[Event]:
    answer = MessageAnswer(make_request("Hello."), Tally())
    answer.sent()
    return [*(event for frame in frames for event in answer.read(frame)), *answer.end()]


def ending(events: list[Event]) -> Finished:
    assert isinstance(events[-1], Finished)
    return events[-1]


def calls(events: list[Event]) -> list[tuple[str, Any]]:
    found: list[tuple[str, str]] = []
    for event in events:
        match event:
            case ToolCallStarted(name=name):
                found.append((name, ""))
            case ToolCallDelta(arguments=more):
                name, arguments = found[-1]
                found[-1] = name, arguments + more
    return [(name, json.loads(arguments)) for name, arguments in found]


def test_it_reads_an_answer_as_anthropic_streams_it() -> None:
    events = read(
        start(input_tokens=5, cache_read_input_tokens=3, cache_creation_input_tokens=2),
        *TEXT,
        end(output_tokens=4, output_tokens_details={"thinking_tokens": 1}),
        {"type": "message_stop"},
    )

    assert events[:3] == [Started(prompt_tokens=10), TextDelta("Hel"), TextDelta("lo.")]
    usage = Usage(
        prompt_tokens=10,
        cached_tokens=3,
        cache_written_tokens=2,
        output_tokens=4,
        thinking_tokens=1,
    )
    assert ending(events) == Finished(reason=FinishReason.END, usage=usage)


def test_later_counts_take_the_place_of_earlier_ones() -> None:
    last = end(
        input_tokens=0, cache_read_input_tokens=8, cache_creation_input_tokens=None, output_tokens=4
    )

    usage = ending(read(start(input_tokens=8, output_tokens=1), *TEXT, last)).usage

    assert (usage.prompt_tokens, usage.cached_tokens, usage.output_tokens) == (8, 8, 4)


def test_zeros_of_those_who_do_not_know_change_nothing() -> None:
    usage = ending(read(start(input_tokens=8), *TEXT, end(input_tokens=0, output_tokens=4))).usage

    assert usage.prompt_tokens == 8


@pytest.mark.parametrize("count", [-1, True, 0.5, "many", 10**9 + 1, 2**62, 10**25])
def test_counts_that_cannot_be_are_as_if_unsaid(count: object) -> None:
    last = end(input_tokens=count, cache_read_input_tokens=count, output_tokens=count)

    usage = ending(read(start(input_tokens=8), *TEXT, last)).usage

    assert usage == Usage(prompt_tokens=8, cached_tokens=0, output_tokens=2)


def test_calls_may_come_piece_by_piece_beside_each_other() -> None:
    events = read(
        start(input_tokens=5),
        block(0, type="tool_use", id="toolu_1", name="one", input={}),
        block(1, type="tool_use", id="toolu_2", name="two", input={}),
        block(2, type="tool_use", id="toolu_3", name="three", input={"z": 3}),
        delta(0, type="input_json_delta", partial_json='{"x":'),
        delta(1, type="input_json_delta", partial_json='{"y":'),
        delta(0, type="input_json_delta", partial_json=" 1}"),
        delta(1, type="input_json_delta", partial_json=" 2}"),
        *(stop(index) for index in range(3)),
        end("tool_use"),
    )

    assert calls(events) == [("one", {"x": 1}), ("two", {"y": 2}), ("three", {"z": 3})]


def test_a_call_without_arguments_holds_up_no_other() -> None:
    answer = MessageAnswer(make_request("Hello."), Tally())
    frames = [
        start(input_tokens=5),
        block(0, type="tool_use", id="toolu_1", name="one", input={}),
        stop(0),
        block(1, type="tool_use", id="toolu_2", name="two", input={}),
    ]
    events = [event for frame in frames for event in answer.read(frame)]

    named = [event.name for event in events if isinstance(event, ToolCallStarted)]
    assert named == ["one", "two"]


def test_what_the_cache_was_given_counts_at_every_moment() -> None:
    tally = Tally()
    list(MessageAnswer(make_request("Hello."), tally).read(start(cache_creation_input_tokens=6)))

    assert (tally.prompt_tokens, tally.cache_written_tokens) == (6, 6)


def test_usage_that_never_comes_is_estimated() -> None:
    usage = ending(read({"type": "message_start"}, *TEXT, end())).usage

    assert usage.prompt_tokens > 0
    assert usage.output_tokens == 2


def test_thoughts_come_before_the_text() -> None:
    events = read(
        start(input_tokens=5),
        block(0, type="thinking", thinking="", signature=""),
        delta(0, type="thinking_delta", thinking="Hm."),
        delta(0, type="signature_delta", signature="c2lnbmVk"),
        stop(0),
        block(1, type="redacted_thinking", data="x"),
        stop(1),
        *TEXT,
        end(),
    )

    assert events[1:4] == [ThinkingDelta("Hm."), TextDelta("Hel"), TextDelta("lo.")]


def test_text_may_stand_at_the_beginning_of_its_block() -> None:
    events = read(start(input_tokens=5), block(0, type="text", text="Hi."), stop(0), end())

    assert events[1] == TextDelta("Hi.")


def test_calls_come_in_pieces() -> None:
    events = read(
        start(input_tokens=5),
        *TEXT,
        block(1, type="tool_use", id="toolu_1", name="one", input={}),
        delta(1, type="input_json_delta", partial_json=""),
        delta(1, type="input_json_delta", partial_json='{"x"'),
        delta(1, type="input_json_delta", partial_json=": 1}"),
        stop(1),
        block(2, type="tool_use", id="toolu_2", name="two", input={}),
        stop(2),
        end("tool_use"),
    )

    assert calls(events) == [("one", {"x": 1}), ("two", {})]
    assert ending(events).reason is FinishReason.TOOL_USE


def test_arguments_may_stand_at_the_beginning_of_their_block() -> None:
    whole = block(0, type="tool_use", id="toolu_1", name="one", input={"x": 1})

    assert calls(read(start(input_tokens=5), whole, stop(0), end("tool_use"))) == [
        ("one", {"x": 1})
    ]


def test_arguments_that_come_twice_are_taken_once() -> None:
    events = read(
        start(input_tokens=5),
        block(0, type="tool_use", id="toolu_1", name="one", input={"x": 1}),
        delta(0, type="input_json_delta", partial_json='{"x": 1}'),
        stop(0),
        end("tool_use"),
    )

    assert calls(events) == [("one", {"x": 1})]


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ("end_turn", FinishReason.END),
        ("max_tokens", FinishReason.LENGTH),
        ("model_context_window_exceeded", FinishReason.LENGTH),
        ("refusal", FinishReason.REFUSAL),
        ("something_new", FinishReason.END),
    ],
)
def test_reasons_to_stop_are_translated(told: str, reason: FinishReason) -> None:
    assert ending(read(start(input_tokens=5), *TEXT, end(told))).reason is reason


def test_the_stop_sequence_is_told() -> None:
    told = ending(read(start(input_tokens=5), *TEXT, end("stop_sequence", "END")))

    assert (told.reason, told.stop_sequence) == (FinishReason.STOP_SEQUENCE, "END")


def test_events_and_blocks_that_are_not_known_are_passed_over() -> None:
    events = read(
        {"type": "ping"},
        start(input_tokens=5),
        {"type": "something_new", "index": 3},
        block(0, type="something_new", data=[1]),
        delta(0, type="something_delta", value=1),
        stop(0),
        *TEXT,
        end(),
    )

    assert events[1:3] == [TextDelta("Hel"), TextDelta("lo.")]


def test_an_answer_that_is_broken_off_is_no_answer() -> None:
    with pytest.raises(UpstreamError, match="broke the answer off") as caught:
        read(start(input_tokens=5), *TEXT)

    assert not caught.value.passing


def test_an_answer_of_which_only_the_reason_is_missing_is_whole() -> None:
    events = read(start(input_tokens=5), *TEXT, end(None), {"type": "message_stop"})

    assert ending(events).reason is FinishReason.END


@pytest.mark.parametrize("frame", ["text", [], {"type": 5}, {"type": "ping", "delta": "x"}])
def test_what_is_no_event_is_an_error(frame: object) -> None:
    with pytest.raises(UpstreamError, match="cannot be read"):
        read(frame)


def test_an_empty_stream_may_be_tried_again() -> None:
    with pytest.raises(UpstreamError, match="it is empty") as caught:
        read()

    assert caught.value.passing


def test_the_first_call_is_the_last_where_one_is_wanted() -> None:
    request = make_request("Hello.")
    request = replace(request, tool_choice=replace(request.tool_choice, parallel=False))
    answer = MessageAnswer(request, Tally())
    frames = [
        start(input_tokens=5),
        block(0, type="tool_use", id="toolu_1", name="one", input={}),
        stop(0),
        block(1, type="tool_use", id="toolu_2", name="two", input={}),
    ]

    events = [event for frame in frames for event in answer.read(frame)]

    assert answer.full
    assert calls([*events, *answer.end()]) == [("one", {})]
