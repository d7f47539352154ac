"""Thinking and tool calls in both forms of the answer, read back by the official SDK."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import httpx2
from anthropic.types import MessageParam
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.dialects.anthropic.encode import MessageStream, message
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
from inference.fold import fold

ASK: list[MessageParam] = [{"role": "user", "content": "hi"}]
CALL_ID = "0f8a1c2e-0000-4000-8000-00000000000a"
USAGE = Usage(
    prompt_tokens=100, cached_tokens=60, cache_written_tokens=30, output_tokens=9, thinking_tokens=4
)


def run_of(*deltas: Event, reason: FinishReason = FinishReason.TOOL_USE) -> list[Event]:
    return [Started(100), *deltas, Finished(reason=reason, usage=USAGE)]


def call(*fragments: str, name: str = "f", call_id: str = CALL_ID) -> list[Event]:
    return [ToolCallStarted(id=call_id, name=name), *map(ToolCallDelta, fragments)]


def stream_of(events: list[Event]) -> bytes:
    stream = MessageStream("msg_1", "m", "req_1")
    return b"".join(map(stream.feed, events))


def frames(events: list[Event]) -> list[dict[str, Any]]:
    records = stream_of(events).decode().removesuffix("\n\n").split("\n\n")
    return [json.loads(record.partition("data: ")[2]) for record in records]


def told(events: list[Event]) -> list[tuple[object, ...]]:
    """Shorten the frames of the blocks to what differs."""
    short: list[tuple[object, ...]] = []
    for frame in frames(events):
        match frame:
            case {"type": "content_block_start", "index": index, "content_block": {"type": kind}}:
                short.append(("start", index, kind))
            case {"type": "content_block_delta", "index": index, "delta": {"type": kind, **rest}}:
                short.append((kind, index, *rest.values()))
            case {"type": "content_block_stop", "index": index}:
                short.append(("stop", index))
    return short


async def whole(events: list[Event]) -> bytes:
    async def feed() -> AsyncIterator[Event]:
        for event in events:
            yield event

    return message(await fold(feed()), "msg_1", "m")


def client_of(content: bytes, content_type: str) -> anthropic.Anthropic:
    response = httpx2.Response(200, headers={"content-type": content_type}, content=content)
    transport = httpx2.MockTransport(lambda _request: response)
    return anthropic.Anthropic(
        api_key="k",
        base_url="http://tandem",
        http_client=httpx2.Client(transport=transport),
        max_retries=0,
    )


def folded(events: list[Event]) -> dict[str, Any]:
    with (
        client_of(stream_of(events), "text/event-stream") as client,
        client.messages.stream(model="m", max_tokens=9, messages=ASK) as answer,
    ):
        return shown(answer.get_final_message())


def folded_by_beta(events: list[Event]) -> dict[str, Any]:
    with (
        client_of(stream_of(events), "text/event-stream") as client,
        client.beta.messages.stream(
            model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}]
        ) as answer,
    ):
        return shown(answer.get_final_message())


def read(body: bytes) -> dict[str, Any]:
    with client_of(body, "application/json") as client:
        return shown(client.messages.create(model="m", max_tokens=9, messages=ASK))


def shown(answer: anthropic.BaseModel) -> dict[str, Any]:
    """Leave out what the SDK does not take over from `message_delta`."""
    fields: dict[str, Any] = answer.to_dict()
    fields["usage"].pop("cache_creation", None)
    return fields


def test_bug_01_and_02_thinking_never_lands_in_a_text_block() -> None:
    events = run_of(TextDelta("a"), ThinkingDelta("b"), ThinkingDelta("c"), TextDelta("d"))
    assert told(events) == [
        ("start", 0, "text"),
        ("text_delta", 0, "a"),
        ("stop", 0),
        ("start", 1, "thinking"),
        ("thinking_delta", 1, "b"),
        ("thinking_delta", 1, "c"),
        ("signature_delta", 1, ""),
        ("stop", 1),
        ("start", 2, "text"),
        ("text_delta", 2, "d"),
        ("stop", 2),
    ]
    assert [frame["type"] for frame in frames(events)].count("message_start") == 1


def test_bug_03_04_and_14_blocks_are_numbered_and_open_one_at_a_time() -> None:
    events = run_of(
        ThinkingDelta("a"), TextDelta("b"), *call('{"x":', "1}"), *call("{}"), TextDelta("c")
    )
    is_open, following = False, 0
    for step, index, *_ in told(events):
        assert index == following
        assert is_open is (step != "start")
        is_open = step != "stop"
        following += step == "stop"
    assert (is_open, following) == (False, 5)


def test_bug_05_arguments_stream_as_they_come_and_none_are_an_empty_object() -> None:
    assert told(run_of(*call('{"a"', ": 1", "}"), *call())) == [
        ("start", 0, "tool_use"),
        ("input_json_delta", 0, '{"a"'),
        ("input_json_delta", 0, ": 1"),
        ("input_json_delta", 0, "}"),
        ("stop", 0),
        ("start", 1, "tool_use"),
        ("input_json_delta", 1, "{}"),
        ("stop", 1),
    ]


def test_bug_06_and_08_the_first_frame_is_a_full_message() -> None:
    start = frames(run_of())[0]["message"]
    assert (start["type"], start["role"], start["content"]) == ("message", "assistant", [])
    assert start["usage"] == {
        "input_tokens": 100,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": 0,
    }


async def test_bug_07_21_and_22_the_prompt_is_split_and_never_counted_twice() -> None:
    for answer in (folded(run_of()), read(await whole(run_of()))):
        assert answer["usage"] == {
            "input_tokens": 10,
            "cache_creation_input_tokens": 30,
            "cache_read_input_tokens": 60,
            "output_tokens": 9,
            "output_tokens_details": {"thinking_tokens": 4},
        }


async def test_bug_09_a_call_has_its_own_id_and_no_empty_text_beside_it() -> None:
    body = json.loads(await whole(run_of(*call('{"a": 1}'))))
    assert body["content"] == [
        {
            "type": "tool_use",
            "id": "toolu_0f8a1c2e00004000800000000000000a",
            "name": "f",
            "input": {"a": 1},
        }
    ]


async def test_bug_11_a_matched_stop_sequence_is_told_in_both_forms() -> None:
    end = Finished(reason=FinishReason.STOP_SEQUENCE, usage=USAGE, stop_sequence="END")
    events: list[Event] = [Started(100), TextDelta("a"), end]
    for answer in (folded(events), read(await whole(events))):
        assert (answer["stop_reason"], answer["stop_sequence"]) == ("stop_sequence", "END")


def test_bug_13_a_thinking_block_gets_its_empty_signature_once() -> None:
    kinds = [step[0] for step in told(run_of(ThinkingDelta("a"), ThinkingDelta("b")))]
    assert kinds == ["start", "thinking_delta", "thinking_delta", "signature_delta", "stop"]


async def test_bug_64_and_65_a_call_is_a_block_and_the_reason_says_so() -> None:
    events = run_of(TextDelta("I look."), *call('{"a": 1}'))
    for answer in (folded(events), read(await whole(events))):
        assert answer["stop_reason"] == "tool_use"
        assert [block["type"] for block in answer["content"]] == ["text", "tool_use"]


async def test_the_whole_message_has_the_arguments_as_the_model_wrote_them() -> None:
    arguments = '{"n": 1e999, "big": 123456789012345678901234567890, "f": 1.10}'
    assert arguments.encode() in await whole(run_of(*call(arguments)))


async def test_a_thinking_block_has_its_signature_in_the_whole_message() -> None:
    body = json.loads(await whole(run_of(ThinkingDelta("hm"), TextDelta("a"))))
    assert body["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": ""},
        {"type": "text", "text": "a"},
    ]


async def test_a_prewarmed_cache_is_an_answer_without_content_that_reached_its_limit() -> None:
    events = run_of(reason=FinishReason.LENGTH)
    for answer in (folded(events), read(await whole(events))):
        assert (answer["content"], answer["stop_reason"]) == ([], "max_tokens")


def test_the_beta_client_folds_the_same() -> None:
    events = run_of(ThinkingDelta("a"), TextDelta("b"), *call('{"x":', " [1]}"))
    assert folded_by_beta(events)["content"] == folded(events)["content"]


def cut(text: str, sizes: list[int]) -> list[str]:
    pieces = []
    for size in sizes:
        pieces.append(text[:size])
        text = text[size:]
    return [piece for piece in [*pieces, text] if piece]


SIZES = st.lists(st.integers(1, 4), max_size=6)
TEXTS = st.text(min_size=1, max_size=12)
OBJECTS = st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=5), max_size=3)
PARTS = st.lists(
    st.tuples(st.sampled_from([TextDelta, ThinkingDelta]), TEXTS)
    | st.tuples(st.just(ToolCallDelta), OBJECTS.map(json.dumps)),
    max_size=5,
)


def deltas(parts: list[tuple[type, str]], sizes: list[int]) -> list[Event]:
    events: list[Event] = []
    for kind, text in parts:
        if kind is ToolCallDelta:
            events += call(*cut(text, sizes))
        else:
            events += [kind(piece) for piece in cut(text, sizes)]
    return events


@settings(deadline=None, max_examples=60)
@given(parts=PARTS, sizes=SIZES)
async def test_any_cut_of_the_events_folds_into_the_whole_message(
    parts: list[tuple[type, str]], sizes: list[int]
) -> None:
    assert folded(run_of(*deltas(parts, sizes))) == read(await whole(run_of(*deltas(parts, []))))
