"""From canonical events to the Responses API's events, held against the official SDK's types."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.dialects.responses.encode import ResponseEncoder, render, status_of
from inference.errors import ErrorCode, TandemError
from inference.events import (
    Event,
    Failed,
    Finished,
    FinishReason,
    Likely,
    Started,
    TextDelta,
    ThinkingDelta,
    TokenLogprob,
    ToolCallDelta,
    ToolCallStarted,
)
from inference.fold import Answer, Parts
from tests.openai_types import check_response
from tests.unit.gateway.dialects.responses.runs import (
    CALLED,
    CUT,
    END,
    HEX,
    ID,
    kinds,
    read_frames,
    shape_of,
    stream_of,
)

CALL = "0193f5a2-2222-7aaa-8bbb-0123456789ab"
SCORE = TokenLogprob(Likely("hi", -0.25, b"hi"), (Likely("hi", -0.25, b"hi"),))


def folded(events: list[Event]) -> Answer:
    parts = Parts()
    for event in events[1:-1]:
        parts.add(event)  # type: ignore[arg-type]
    finished = events[-1]
    assert isinstance(finished, Finished)
    return parts.answer(finished)


def test_bug_48_a_text_is_told_by_every_event_that_clients_wait_for() -> None:
    events = stream_of([Started(12), TextDelta("Hel"), TextDelta("lo"), END])

    assert kinds(events) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert [event["delta"] for event in events[4:6]] == ["Hel", "lo"]
    assert events[6]["text"] == "Hello"
    assert events[-1]["response"]["status"] == "completed"
    assert events[-1]["response"]["usage"] == {
        "input_tokens": 12,
        "input_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 3},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 17,
    }


def test_bug_45_a_call_is_told_by_its_arguments_and_never_as_text() -> None:
    run: list[Event] = [
        Started(1),
        ToolCallStarted(id=CALL, name="weather"),
        ToolCallDelta('{"city":'),
        ToolCallDelta('"Paris"}'),
        CALLED,
    ]
    events = stream_of(run)

    assert kinds(events)[2:-1] == [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
    ]
    assert events[2]["item"]["arguments"] == ""
    assert events[5]["arguments"] == '{"city":"Paris"}'
    assert events[5]["name"] == "weather"
    assert events[6]["item"]["call_id"] == f"call_{CALL.replace('-', '')}"


def test_a_call_without_arguments_has_an_empty_object() -> None:
    events = stream_of([Started(1), ToolCallStarted(id=CALL, name="now"), CALLED])

    deltas = [event["delta"] for event in events if event["type"].endswith("arguments.delta")]
    assert deltas == ["{}"]
    assert events[-1]["response"]["output"][0]["arguments"] == "{}"


def test_bug_46_calls_and_text_may_alternate() -> None:
    run: list[Event] = [
        Started(1),
        TextDelta("Let me see. "),
        ToolCallStarted(id=CALL, name="weather"),
        ToolCallDelta("{}"),
        TextDelta("And now?"),
        ToolCallStarted(id=ID, name="weather"),
        ToolCallDelta("{}"),
        CALLED,
    ]
    events = stream_of(run)

    output = events[-1]["response"]["output"]
    assert [item["type"] for item in output] == ["message", "function_call"] * 2
    added = [event for event in events if event["type"] == "response.output_item.added"]
    assert [event["output_index"] for event in added] == [0, 1, 2, 3]


def test_bug_47_a_call_after_reasoning_is_an_item_of_its_own() -> None:
    run: list[Event] = [
        Started(1),
        ThinkingDelta("Hm."),
        ToolCallStarted(id=CALL, name="weather"),
        ToolCallDelta("{}"),
        CALLED,
    ]

    output = stream_of(run)[-1]["response"]["output"]
    assert [item["type"] for item in output] == ["reasoning", "function_call"]


def test_reasoning_is_told_as_it_is() -> None:
    events = stream_of([Started(1), ThinkingDelta("Hm"), ThinkingDelta("."), TextDelta("Yes"), END])

    assert kinds(events)[2:9] == [
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
    ]
    item = events[8]["item"]
    assert item["content"] == [{"type": "reasoning_text", "text": "Hm."}]
    assert item["summary"] == []


def test_reasoning_is_its_own_summary_where_one_is_wanted() -> None:
    shape = shape_of(reasoning={"summary": "auto"})
    events = stream_of([Started(1), ThinkingDelta("Hm."), TextDelta("Yes"), END], shape)

    assert kinds(events)[2:8] == [
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
    ]
    assert events[7]["item"]["summary"] == [{"type": "summary_text", "text": "Hm."}]
    assert "content" not in events[7]["item"]


def test_reasoning_that_is_not_wanted_is_not_told() -> None:
    events = stream_of(
        [Started(1), ThinkingDelta("Hm."), TextDelta("Yes"), END], shape_of(include_reasoning=False)
    )

    assert [item["type"] for item in events[-1]["response"]["output"]] == ["message"]
    assert events[-1]["response"]["output"][0]["id"] == f"msg_{HEX}_out_0"


def test_log_probabilities_come_with_their_text() -> None:
    run: list[Event] = [Started(1), TextDelta("hi", (SCORE,)), TextDelta(" hi", (SCORE,)), END]
    events = stream_of(run)

    told = {"token": "hi", "bytes": [104, 105], "logprob": -0.25}
    wanted = told | {"top_logprobs": [told]}
    assert [event["logprobs"] for event in events[4:6]] == [[wanted], [wanted]]
    assert events[6]["logprobs"] == [wanted, wanted]
    assert events[-1]["response"]["output"][0]["content"][0]["logprobs"] == [wanted, wanted]


def test_an_answer_that_was_cut_is_incomplete() -> None:
    events = stream_of([Started(1), TextDelta("Once upon"), CUT])

    assert events[-1]["type"] == "response.incomplete"
    response = events[-1]["response"]
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert response["output"][0]["status"] == events[-2]["item"]["status"] == "incomplete"


def test_an_answer_that_the_provider_stopped_is_incomplete() -> None:
    refused = Finished(reason=FinishReason.REFUSAL, usage=CUT.usage)
    events: list[Event] = [Started(1), TextDelta("Once upon"), refused]

    (*_, last) = stream_of(events)

    assert last["type"] == "response.incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "content_filter"}
    rendered = render(shape_of(), status_of(refused), answer=folded(events))
    assert rendered["incomplete_details"] == {"reason": "content_filter"}


def test_an_answer_may_be_empty() -> None:
    events = stream_of([Started(1), END])

    assert kinds(events) == ["created", "in_progress", "completed"]
    assert events[-1]["response"]["output"] == []


def test_a_run_that_another_engine_took_over_starts_once() -> None:
    events = stream_of([Started(1), Started(1), TextDelta("hi"), END])

    assert kinds(events).count("created") == 1


def test_a_broken_run_ends_with_what_there_was() -> None:
    failed = Failed(code=ErrorCode.ENGINE_LOST, message="the engine died")
    events = stream_of([Started(1), TextDelta("Once upon"), failed])

    assert events[-1]["type"] == "response.failed"
    response = events[-1]["response"]
    assert response["status"] == "failed"
    assert response["error"] == {"code": "server_error", "message": "the engine died"}
    assert response["output"][0]["content"][0]["text"] == "Once upon"
    assert response["output"][0]["status"] == "incomplete"


def test_a_cancelled_run_ends_with_the_response_cancelled() -> None:
    cancelled = Failed(code=ErrorCode.CANCELLED, message="")
    response = stream_of([Started(1), TextDelta("Once"), cancelled])[-1]["response"]

    assert (response["status"], response["error"]) == ("cancelled", None)
    assert response["incomplete_details"] is None


@pytest.mark.parametrize("code", list(ErrorCode))
def test_every_error_has_a_code_that_the_api_knows(code: ErrorCode) -> None:
    check_response(render(shape_of(), "failed", error=TandemError(code, "no")))


@pytest.mark.parametrize(
    "status", ["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
)
def test_every_status_is_rendered_as_the_sdk_knows_it(status: str) -> None:
    check_response(render(shape_of(), status))


def test_what_fails_first_can_still_be_refused() -> None:
    failed = Failed(code=ErrorCode.OVERLOADED, message="full")

    error = ResponseEncoder(shape_of()).refusal(failed)

    assert error is not None
    assert error.code is ErrorCode.OVERLOADED


def test_a_background_response_is_never_refused_any_more() -> None:
    failed = Failed(code=ErrorCode.OVERLOADED, message="full")
    encoder = ResponseEncoder(shape_of(background=True))

    assert encoder.refusal(failed) is None
    events = read_frames(encoder.feed(failed))
    assert kinds(events) == ["created", "queued", "failed"]


def test_a_background_response_is_told_while_it_is_queued() -> None:
    encoder = ResponseEncoder(shape_of(background=True))

    first = read_frames(encoder.keep_alive(begun=False))
    assert kinds(first) == ["created", "queued"]
    assert {event["response"]["status"] for event in first} == {"queued"}
    assert read_frames(encoder.keep_alive(begun=False)) == []
    assert kinds(read_frames(encoder.feed(Started(1)))) == ["in_progress"]


def test_a_quiet_stream_is_kept_alive_by_what_clients_do_not_see() -> None:
    assert ResponseEncoder(shape_of()).keep_alive(begun=False).startswith(b": ")


RUN: list[Event] = [
    Started(12),
    ThinkingDelta("Hm\u2028"),
    TextDelta("Hello\x85"),
    TextDelta(" there", (SCORE,)),
    ToolCallStarted(id=CALL, name="weather"),
    ToolCallDelta("{}"),
    END,
]


@pytest.mark.parametrize("skip_until", range(-1, 24))
def test_bug_44_a_resumed_stream_has_no_gap_and_no_repeat(skip_until: int) -> None:
    whole = stream_of(RUN, shape_of(background=True))

    assert stream_of(RUN, shape_of(background=True), skip_until) == whole[skip_until + 1 :]


MCP = {"type": "mcp", "server_label": "wiki", "server_url": "https://x.test", "authorization": "k"}

texts = st.text(min_size=1, max_size=8)
scored = st.builds(TextDelta, texts, st.sampled_from([(), (SCORE,)]))
calls = st.builds(
    lambda name, pieces: [ToolCallStarted(id=CALL, name=name), *map(ToolCallDelta, pieces)],
    st.from_regex(r"[a-z_]{1,8}", fullmatch=True),
    st.lists(texts, max_size=3),
)
steps = st.one_of(scored.map(lambda one: [one]), texts.map(lambda t: [ThinkingDelta(t)]), calls)
bodies = st.fixed_dictionaries(
    {},
    optional={
        "include_reasoning": st.booleans(),
        "reasoning": st.sampled_from([{}, None, {"summary": "auto"}]),
        "tools": st.just([{"type": "function", "name": "f", "parameters": {}}, MCP]),
        "tool_choice": st.sampled_from(["auto", {"type": "function", "name": "f"}]),
        "text": st.sampled_from([None, {"format": {"type": "json_object"}}, {"verbosity": "low"}]),
        "metadata": st.just({"a": "b"}),
    },
)


@settings(max_examples=200, deadline=None)
@given(st.lists(steps, max_size=6), st.sampled_from([END, CUT, CALLED]), bodies)
def test_a_stream_ends_with_the_very_response_that_is_answered_without_one(
    run: list[list[Event]], end: Finished, body: dict[str, Any]
) -> None:
    events = [Started(3), *(event for step in run for event in step), end]
    shape = shape_of(**body)

    told = stream_of(events, shape)

    answered = render(shape, status_of(end), answer=folded(events))
    assert told[-1]["response"] == answered
    assert [e["item"] for e in told if e["type"] == "response.output_item.done"] == (
        answered["output"]
    )
