"""From the chunks of a chat completion to events, oddities of servers included."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from inference.backends.openai_answer import ChatAnswer
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

USAGE = {
    "prompt_tokens": 9,
    "completion_tokens": 4,
    "prompt_tokens_details": {"cached_tokens": 3},
    "completion_tokens_details": {"reasoning_tokens": 2},
}


def piece(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def read(*chunks: object, **sampling: Any) -> list[Event]:
    answer = ChatAnswer(make_request("Hello.", **sampling), Tally())
    answer.sent()
    events = []
    for chunk in chunks:
        events += list(answer.read(chunk))
        if answer.full:
            break
    return [*events, *answer.end()]


def ending(events: list[Event]) -> Finished:
    assert isinstance(events[-1], Finished)
    return events[-1]


def texts(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


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


def call(index: int | None = 0, **fields: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"function": fields.pop("function", {})} | fields
    return made if index is None else made | {"index": index}


def test_it_reads_an_answer_as_openai_streams_it() -> None:
    events = read(
        piece(role="assistant", content="", refusal=None),
        piece(content="Hel"),
        piece(content="lo."),
        piece("stop"),
        {"choices": [], "usage": USAGE},
    )

    assert isinstance(events[0], Started)
    assert events[1:3] == [TextDelta("Hel"), TextDelta("lo.")]
    assert ending(events) == Finished(
        reason=FinishReason.END,
        usage=Usage(prompt_tokens=9, cached_tokens=3, output_tokens=4, thinking_tokens=2),
    )


def test_usage_is_read_wherever_it_comes() -> None:
    first = read(piece(content="Hi.") | {"usage": USAGE}, piece("stop"))
    with_last = read(piece(content="Hi."), piece("stop") | {"usage": USAGE})

    assert isinstance(first[0], Started)
    assert first[0].prompt_tokens == 9
    assert ending(first).usage == ending(with_last).usage
    assert ending(first).usage.output_tokens == 4


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": 0, "completion_tokens": None}])
def test_usage_that_never_comes_is_estimated(usage: object) -> None:
    events = read(piece(content="one"), piece(content=" two"), piece("stop") | {"usage": usage})

    assert ending(events).usage.prompt_tokens > 0
    assert ending(events).usage.output_tokens == 2


def test_long_pieces_are_estimated_by_their_length() -> None:
    assert ending(read(piece("stop", content="x" * 500))).usage.output_tokens == 100


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_is_read_under_either_name(field: str) -> None:
    events = read(piece(**{field: "Hm."}), piece(content="Yes."), piece("stop"))

    assert events[1:3] == [ThinkingDelta("Hm."), TextDelta("Yes.")]


def test_an_empty_name_hides_no_reasoning() -> None:
    events = read(piece(reasoning="Hm.", reasoning_content=""), piece("stop", content="Yes."))

    assert events[1:3] == [ThinkingDelta("Hm."), TextDelta("Yes.")]


def test_reasoning_under_both_names_is_read_once() -> None:
    events = read(piece(reasoning="Hm.", reasoning_content="Hm."), piece("stop", content="Yes."))

    assert events[1:3] == [ThinkingDelta("Hm."), TextDelta("Yes.")]


def test_content_may_come_in_parts() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    events = read(piece(content=[thinking, {"type": "text", "text": "Yes."}]), piece("stop"))

    assert events[1:3] == [ThinkingDelta("Hm."), TextDelta("Yes.")]


def test_a_refusal_is_text() -> None:
    assert texts(read(piece(content=None, refusal="No."), piece("stop"))) == "No."


def test_what_is_missing_or_null_is_done_without() -> None:
    events = read(
        {"id": "x", "choices": None},
        {"choices": [], "prompt_filter_results": []},
        {"choices": [{"delta": None}]},
        {"choices": [{"delta": {"content": "Hi.", "tool_calls": None}, "logprobs": None}]},
        {"choices": [{"finish_reason": "stop"}], "usage": None},
    )

    assert texts(events) == "Hi."


def test_calls_come_in_pieces() -> None:
    events = read(
        piece(tool_calls=[call(id="a", function={"name": "one", "arguments": ""})]),
        piece(tool_calls=[call(function={"arguments": '{"x"'})]),
        piece(tool_calls=[call(function={"arguments": ": 1}"})]),
        piece(tool_calls=[call(1, id="b", function={"name": "two", "arguments": None})]),
        piece("tool_calls"),
    )

    assert calls(events) == [("one", {"x": 1}), ("two", {})]
    assert ending(events).reason is FinishReason.TOOL_USE


def test_whole_calls_without_an_index_are_told_apart_by_id() -> None:
    first = call(None, id="a", function={"name": "one", "arguments": '{"x": 1}'})
    second = call(None, id="b", function={"name": "one", "arguments": '{"x": 2}'})

    events = read(piece(tool_calls=[first]), piece("stop", tool_calls=[second]))

    assert calls(events) == [("one", {"x": 1}), ("one", {"x": 2})]
    assert ending(events).reason is FinishReason.TOOL_USE


def test_a_name_and_id_that_come_again_begin_no_other_call() -> None:
    named = {"name": "one", "arguments": '{"x":'}
    again = {"name": "one", "arguments": " 1}"}

    events = read(
        piece(tool_calls=[call(id="a", function=named)]),
        piece("tool_calls", tool_calls=[call(id="a", function=again)]),
    )

    assert calls(events) == [("one", {"x": 1})]


def more(index: int, arguments: str) -> dict[str, Any]:
    return call(index, function={"arguments": arguments})


def test_calls_may_come_piece_by_piece_beside_each_other() -> None:
    events = read(
        piece(tool_calls=[call(0, id="a", function={"name": "one", "arguments": '{"x"'})]),
        piece(tool_calls=[call(1, id="b", function={"name": "two", "arguments": '{"y"'})]),
        piece(
            tool_calls=[
                call(0, function={"arguments": ": 1"}),
                call(1, function={"arguments": ": 2"}),
            ]
        ),
        piece(
            tool_calls=[call(1, function={"arguments": "}"}), call(0, function={"arguments": "}"})]
        ),
        piece("tool_calls"),
    )

    assert calls(events) == [("one", {"x": 1}), ("two", {"y": 2})]


def test_ids_that_are_new_in_every_piece_begin_no_calls() -> None:
    events = read(
        piece(tool_calls=[call(0, id="a", function={"name": "one", "arguments": ""})]),
        piece(tool_calls=[call(0, id="b", function={"arguments": '{"x"'})]),
        piece("tool_calls", tool_calls=[call(0, id="c", function={"arguments": ": 1}"})]),
    )

    assert calls(events) == [("one", {"x": 1})]


def test_whole_calls_with_nothing_to_tell_them_apart_are_told_apart_by_their_names() -> None:
    made = [call(None, function={"name": "one", "arguments": {"x": number}}) for number in (1, 2)]

    assert calls(read(piece("stop", tool_calls=made))) == [("one", {"x": 1}), ("one", {"x": 2})]


def test_arguments_may_be_an_object() -> None:
    made = call(id="a", function={"name": "one", "arguments": {"x": 1}})

    assert calls(read(piece("tool_calls", tool_calls=[made]))) == [("one", {"x": 1})]


def test_broken_arguments_become_an_object() -> None:
    made = call(id="a", function={"name": "one", "arguments": '{"x": [1, 2'})

    assert calls(read(piece("length", tool_calls=[made]))) == [("one", {"x": [1, 2]})]


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("stop", FinishReason.END),
        ("length", FinishReason.LENGTH),
        ("content_filter", FinishReason.REFUSAL),
        ("eos", FinishReason.END),
    ],
)
def test_reasons_to_finish_are_translated(finish: str, reason: FinishReason) -> None:
    assert ending(read(piece(finish, content="Hi."))).reason is reason


def test_the_stop_text_is_told_by_those_who_know_it() -> None:
    last = {"choices": [{"delta": {}, "finish_reason": "stop", "stop_reason": "END"}]}

    told = ending(read(piece(content="Hi."), last, stop=("END",)))

    assert (told.reason, told.stop_sequence) == (FinishReason.STOP_SEQUENCE, "END")


def test_the_number_of_a_stop_token_is_no_stop_text() -> None:
    last = {"choices": [{"delta": {}, "finish_reason": "stop", "stop_reason": 151645}]}

    assert ending(read(piece(content="Hi."), last)).reason is FinishReason.END


def test_a_stop_text_that_the_upstream_lets_through_ends_the_answer() -> None:
    events = read(piece(content="one E"), piece(content="ND two"), piece("stop"), stop=("END",))

    assert texts(events) == "one "
    assert ending(events).stop_sequence == "END"


def test_text_that_might_have_become_a_stop_text_is_not_lost() -> None:
    assert texts(read(piece(content="one E"), piece("stop"), stop=("END",))) == "one E"


def test_log_probabilities_stand_with_their_text() -> None:
    token = {"token": "Hi", "logprob": -0.5, "bytes": [72, 105]}
    other = {"token": "Yo", "logprob": -1.5, "bytes": None}
    chunk = piece(content="Hi")
    chunk["choices"][0]["logprobs"] = {"content": [token | {"top_logprobs": [token, other]}]}

    _, said, _ = read(chunk, piece("stop"), logprobs=2)

    assert isinstance(said, TextDelta)
    (score,) = said.logprobs
    assert (score.taken.token, score.taken.logprob, score.taken.data) == ("Hi", -0.5, b"Hi")
    assert [likely.token for likely in score.likeliest] == ["Hi", "Yo"]
    assert score.likeliest[1].data == b"Yo"


def test_a_token_that_is_half_a_character_is_told_as_that() -> None:
    chunk = piece(content="Hi")
    chunk["choices"][0]["logprobs"] = {"content": [{"token": "\ud83d", "logprob": -1}]}

    _, said, _ = read(chunk, piece("stop"), logprobs=0)

    assert isinstance(said, TextDelta)
    assert said.logprobs[0].taken.token == "\ufffd"


def test_the_prompt_counts_from_when_it_is_sent() -> None:
    tally = Tally()
    answer = ChatAnswer(make_request("Hello. " * 100), tally)
    answer.sent()
    assert tally.prompt_tokens > 100


def test_an_answer_is_whole_when_its_end_is_told() -> None:
    answer = ChatAnswer(make_request("Hello."), Tally())
    list(answer.read(piece(content="Hi.")))
    assert not answer.whole
    list(answer.read(piece("stop")))
    assert answer.whole


def test_other_choices_are_passed_over() -> None:
    second = {"choices": [{"index": 1, "delta": {"content": "No."}, "finish_reason": "length"}]}

    events = read(piece(content="Yes."), second, piece("stop"))

    assert texts(events) == "Yes."
    assert ending(events).reason is FinishReason.END


def test_an_answer_that_is_broken_off_is_no_answer() -> None:
    with pytest.raises(UpstreamError, match="broke the answer off") as caught:
        read(piece(content="Hi"))

    assert not caught.value.passing


def test_usage_in_every_chunk_makes_no_broken_answer_whole() -> None:
    with pytest.raises(UpstreamError, match="broke the answer off"):
        read(piece(content="Hi") | {"usage": USAGE}, piece(content=".") | {"usage": USAGE})


def test_usage_in_every_chunk_is_right_at_every_moment() -> None:
    tally = Tally()
    answer = ChatAnswer(make_request("Hello."), tally)
    for number in range(1, 4):
        usage = {"prompt_tokens": 9, "completion_tokens": 2 * number}
        list(answer.read(piece(content="one two") | {"usage": usage}))
        assert (tally.prompt_tokens, tally.output_tokens) == (9, 2 * number)


def test_usage_that_only_knows_the_prompt_leaves_the_rest_to_be_estimated() -> None:
    first = piece(content="one") | {"usage": {"prompt_tokens": 9, "completion_tokens": 0}}

    usage = ending(read(first, piece("stop", content=" two"))).usage

    assert (usage.prompt_tokens, usage.output_tokens) == (9, 2)


def test_a_stop_reason_that_nobody_asked_for_is_no_stop_text() -> None:
    last = {"choices": [{"delta": {}, "finish_reason": "stop", "stop_reason": "eos"}]}

    assert ending(read(piece(content="Hi."), last, stop=("END",))).reason is FinishReason.END


def test_an_answer_of_which_only_the_reason_is_missing_is_whole() -> None:
    assert ending(read(piece(content="Hi."), {"usage": USAGE})).reason is FinishReason.END


@pytest.mark.parametrize(
    "chunk",
    [
        "text",
        [],
        {"choices": "none"},
        {"choices": [{"delta": 5}]},
        {"choices": [{"logprobs": {"content": [{"token": "a", "logprob": 0, "bytes": [300]}]}}]},
    ],
)
def test_what_is_no_chunk_is_an_error(chunk: object) -> None:
    with pytest.raises(UpstreamError, match="cannot be read"):
        read(chunk)


def test_an_empty_stream_may_be_tried_again() -> None:
    with pytest.raises(UpstreamError, match="it is empty") as caught:
        read({"usage": USAGE})

    assert caught.value.passing


def test_the_first_call_is_the_last_where_one_is_wanted() -> None:
    request = make_request("Hello.")
    choice = replace(request.tool_choice, parallel=False)
    answer = ChatAnswer(replace(request, tool_choice=choice), Tally())
    two = [
        call(0, id="a", function={"name": "one", "arguments": "{}"}),
        call(1, id="b", function={"name": "two", "arguments": "{}"}),
    ]

    events = [*answer.read(piece(tool_calls=two)), *answer.end()]

    assert answer.full
    assert calls(events) == [("one", {})]
    assert ending(events).reason is FinishReason.TOOL_USE


@pytest.mark.parametrize("count", [-1, True, 0.5, "many", 10**9 + 1, 2**62, 10**25])
def test_counts_that_cannot_be_are_as_if_unsaid(count: object) -> None:
    told = {"prompt_tokens": 9, "completion_tokens": count}
    told["prompt_tokens_details"] = {"cached_tokens": count}
    usage = ending(read(piece(content="Hello."), piece("stop"), {"usage": told})).usage
    assert usage == Usage(prompt_tokens=9, cached_tokens=0, output_tokens=1)


def test_counts_may_be_written_as_text_or_with_a_fraction_of_nothing() -> None:
    told = {"prompt_tokens": "9", "completion_tokens": 4.0}
    usage = ending(read(piece(content="Hello."), piece("stop"), {"usage": told})).usage
    assert usage == Usage(prompt_tokens=9, cached_tokens=0, output_tokens=4)
