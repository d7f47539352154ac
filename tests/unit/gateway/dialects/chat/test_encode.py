"""From canonical events to the Chat answer, read back by the official SDK."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from gateway.dialects.chat.encode import ChunkStream, Shape, completion, failure
from gateway.http.sse import COMMENT
from gateway.serving.choices import Chosen
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
    Usage,
)
from inference.fold import Answer, Parts

CALL_ID = "0f8a1c2e-0000-4000-8000-00000000000a"
PUBLIC_CALL_ID = "call_0f8a1c2e00004000800000000000000a"
USAGE = Usage(prompt_tokens=12, cached_tokens=8, output_tokens=5, thinking_tokens=2)
TOTAL = {
    "prompt_tokens": 12,
    "completion_tokens": 5,
    "total_tokens": 17,
    "prompt_tokens_details": {"cached_tokens": 8, "audio_tokens": 0},
    "completion_tokens_details": {
        "reasoning_tokens": 2,
        "audio_tokens": 0,
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
    },
}
END = Finished(reason=FinishReason.END, usage=USAGE)
CALLED = Finished(reason=FinishReason.TOOL_USE, usage=USAGE)
PARIS = TokenLogprob(
    Likely("Paris", -0.25, b"Paris"), (Likely("Paris", -0.25, b"Paris"), Likely("Rome", -2, b"Ro"))
)
HEAD = {
    "id": "chatcmpl-r1",
    "object": "chat.completion.chunk",
    "created": 1_700_000_000,
    "model": "m",
    "service_tier": "default",
    "system_fingerprint": None,
}


def make_shape(**fields: Any) -> Shape:
    head: dict[str, Any] = {"completion_id": "chatcmpl-r1", "model": "m"}
    return Shape(created_s=1_700_000_000, **(head | fields))


def run_of(*events: Event, end: Event = END) -> list[Event]:
    return [Started(12), *events, end]


def stream_of(*runs: list[Event], **fields: Any) -> bytes:
    """Return the stream of several answers, one event of each after another."""
    stream = ChunkStream(make_shape(choices=len(runs), **fields))
    frames = b""
    for place in range(max(map(len, runs))):
        for choice, events in enumerate(runs):
            if place < len(events) and not stream.over:
                frames += stream.feed(Chosen(choice, events[place]))
    return frames


def chunks(stream: bytes) -> Iterator[dict[str, Any]]:
    """Read frames as the strictest client does: by Unicode lines."""
    text = stream.decode()
    assert text.endswith("\n\n")
    for frame in text.removesuffix("\n\n").split("\n\n"):
        (line,) = frame.splitlines()
        if line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))


def answer_of(events: list[Event]) -> Answer:
    parts = Parts()
    for event in events[1:-1]:
        parts.add(event)  # type: ignore[arg-type]
    finished = events[-1]
    assert isinstance(finished, Finished)
    return parts.answer(finished)


def whole_of(*runs: list[Event], **fields: Any) -> dict[str, Any]:
    shape = make_shape(choices=len(runs), **fields)
    decoded: dict[str, Any] = json.loads(completion([answer_of(run) for run in runs], shape))
    return decoded


def choice(delta: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None} | fields


def deltas(stream: bytes) -> list[dict[str, Any]]:
    return [chunk["choices"][0]["delta"] for chunk in chunks(stream) if chunk["choices"]]


@contextmanager
def sdk(content: bytes, content_type: str) -> Iterator[openai.OpenAI]:
    """Yield the SDK's client of a server that answers everything with `content`."""
    response = httpx2.Response(200, headers={"content-type": content_type}, content=content)
    with (
        httpx2.Client(transport=httpx2.MockTransport(lambda _request: response)) as http,
        openai.OpenAI(
            api_key="k", base_url="http://tandem/v1", http_client=http, max_retries=0
        ) as client,
    ):
        yield client


def read_stream(stream: bytes) -> list[ChatCompletionChunk]:
    with sdk(stream, "text/event-stream") as client:
        return list(client.chat.completions.create(model="m", messages=[], stream=True))


def read_whole(body: bytes) -> ChatCompletion:
    with sdk(body, "application/json") as client:
        return client.chat.completions.create(model="m", messages=[])


def test_it_sends_the_chunks_in_openais_order() -> None:
    stream = stream_of(run_of(TextDelta("Pa"), TextDelta("ris")))
    assert list(chunks(stream)) == [
        HEAD | {"choices": [choice({"role": "assistant", "content": "", "refusal": None})]},
        HEAD | {"choices": [choice({"content": "Pa"})]},
        HEAD | {"choices": [choice({"content": "ris"})]},
        HEAD | {"choices": [choice({}, finish_reason="stop", stop_reason=None)]},
    ]
    assert stream.endswith(b"\n\ndata: [DONE]\n\n")


def test_usage_is_told_in_a_chunk_of_its_own_where_asked_for() -> None:
    *others, last = chunks(stream_of(run_of(TextDelta("Paris")), usage=True))
    assert last == HEAD | {"choices": [], "usage": TOTAL}
    assert [chunk["usage"] for chunk in others] == [None] * len(others)


def test_the_whole_completion_has_every_key() -> None:
    assert whole_of(run_of(TextDelta("Pa"), TextDelta("ris"))) == HEAD | {
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "Paris",
                    "refusal": None,
                    "annotations": [],
                    "reasoning_content": None,
                    "reasoning": None,
                },
                "logprobs": None,
                "finish_reason": "stop",
                "stop_reason": None,
            }
        ],
        "usage": TOTAL,
    }


@pytest.mark.parametrize(
    ("end", "reason", "matched"),
    [
        (END, "stop", None),
        (Finished(reason=FinishReason.LENGTH, usage=USAGE), "length", None),
        (Finished(reason=FinishReason.REFUSAL, usage=USAGE), "content_filter", None),
        (
            Finished(reason=FinishReason.STOP_SEQUENCE, usage=USAGE, stop_sequence="\u2028"),
            "stop",
            "\u2028",
        ),
        (CALLED, "tool_calls", None),
    ],
)
def test_both_forms_say_why_the_answer_ended(
    end: Finished, reason: str, matched: str | None
) -> None:
    run = run_of(TextDelta("x"), end=end)
    *_, last = chunks(stream_of(run))
    for said in (last["choices"][0], whole_of(run)["choices"][0]):
        assert (said["finish_reason"], said["stop_reason"]) == (reason, matched)


def test_calls_are_counted_and_their_arguments_add_up() -> None:
    run = run_of(
        TextDelta("Let me look."),
        ToolCallStarted(id=CALL_ID, name="f"),
        ToolCallDelta('{"a":'),
        ToolCallDelta(" 1}"),
        ToolCallStarted(id=CALL_ID, name="g"),
        end=CALLED,
    )
    begun = {"id": PUBLIC_CALL_ID, "type": "function"}
    assert deltas(stream_of(run))[2:-1] == [
        {"tool_calls": [{"index": 0, **begun, "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"a":'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": " 1}"}}]},
        {"tool_calls": [{"index": 1, **begun, "function": {"name": "g", "arguments": ""}}]},
        {"tool_calls": [{"index": 1, "function": {"arguments": "{}"}}]},
    ]
    message = whole_of(run)["choices"][0]["message"]
    assert message["content"] == "Let me look."
    assert [call["function"] for call in message["tool_calls"]] == [
        {"name": "f", "arguments": '{"a": 1}'},
        {"name": "g", "arguments": "{}"},
    ]


def test_a_call_alone_has_no_content() -> None:
    run = run_of(ToolCallStarted(id=CALL_ID, name="f"), end=CALLED)
    assert whole_of(run)["choices"][0]["message"]["content"] is None


def test_an_empty_answer_is_empty_text() -> None:
    assert whole_of(run_of())["choices"][0]["message"]["content"] == ""


def test_reasoning_is_shown_under_both_of_its_names() -> None:
    run = run_of(ThinkingDelta("h"), ThinkingDelta("m"), TextDelta("Paris"))
    assert deltas(stream_of(run))[1:3] == [
        {"reasoning_content": "h", "reasoning": "h"},
        {"reasoning_content": "m", "reasoning": "m"},
    ]
    message = whole_of(run)["choices"][0]["message"]
    assert message["reasoning_content"] == message["reasoning"] == "hm"


def test_reasoning_can_be_left_out() -> None:
    run = run_of(ThinkingDelta("hm"), TextDelta("Paris"))
    assert "hm" not in stream_of(run, reasoning=False).decode()
    message = whole_of(run, reasoning=False)["choices"][0]["message"]
    assert message["reasoning_content"] is message["reasoning"] is None


def test_log_probabilities_go_with_their_tokens() -> None:
    told = {"token": "Paris", "logprob": -0.25, "bytes": list(b"Paris")}
    rome = {"token": "Rome", "logprob": -2, "bytes": [82, 111]}
    expected = {"content": [told | {"top_logprobs": [told, rome]}], "refusal": None}
    run = run_of(TextDelta("Paris", (PARIS,)), TextDelta("."))
    _, said, rest, _ = chunks(stream_of(run))
    assert said["choices"][0]["logprobs"] == expected
    assert rest["choices"][0]["logprobs"] is None
    assert whole_of(run)["choices"][0]["logprobs"] == expected


def test_several_answers_have_an_index_each_and_count_the_prompt_once() -> None:
    longer = Finished(
        reason=FinishReason.LENGTH, usage=Usage(prompt_tokens=12, cached_tokens=12, output_tokens=9)
    )
    runs = run_of(TextDelta("a")), run_of(TextDelta("b"), TextDelta("c"), end=longer)
    stream = stream_of(*runs, usage=True)
    texts = ["", ""]
    for chunk in chunks(stream):
        for said in chunk["choices"]:
            texts[said["index"]] += said["delta"].get("content", "")
    assert texts == ["a", "bc"]
    assert stream.count(b"[DONE]") == 1
    usage = list(chunks(stream))[-1]["usage"]
    whole = whole_of(*runs)
    assert usage == whole["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (12, 14)
    assert usage["prompt_tokens_details"]["cached_tokens"] == 8
    assert [said["finish_reason"] for said in whole["choices"]] == ["stop", "length"]


def test_of_answers_that_share_no_prompt_each_counts_its_own() -> None:
    runs = run_of(TextDelta("a")), run_of(TextDelta("b"))
    stream = stream_of(*runs, usage=True, shares_prompt=False)
    usage = list(chunks(stream))[-1]["usage"]
    assert usage == whole_of(*runs, shares_prompt=False)["usage"]
    assert usage["prompt_tokens"] == 2 * USAGE.prompt_tokens


def test_answers_begin_in_their_order_whichever_is_first() -> None:
    stream = ChunkStream(make_shape(choices=3))
    first = stream.feed(Chosen(1, Started(3)))
    assert [chunk["choices"][0]["index"] for chunk in chunks(first)] == [0, 1]
    assert stream.feed(Chosen(0, Started(3))) == b""
    assert [
        chunk["choices"][0]["index"] for chunk in chunks(stream.feed(Chosen(2, Started(3))))
    ] == [2]


def test_a_run_that_starts_again_is_told_once() -> None:
    stream = ChunkStream(make_shape())
    assert stream.feed(Chosen(0, Started(3)))
    assert stream.feed(Chosen(0, Started(3))) == b""


def test_a_broken_stream_ends_with_an_error_that_the_sdk_raises() -> None:
    failed = Failed(code=ErrorCode.ENGINE_LOST, message="the engine stopped")
    stream = stream_of(run_of(TextDelta("Pa"), end=failed))
    assert b"[DONE]" not in stream
    with pytest.raises(openai.APIError, match="the engine stopped") as caught:
        read_stream(stream)
    assert caught.value.type == "server_error"


def test_what_fails_at_once_is_no_stream() -> None:
    stream = ChunkStream(make_shape())
    failed = Failed(code=ErrorCode.PROMPT_TOO_LONG, message="prompt is too long")
    refused = stream.refusal(Chosen(0, failed))
    assert refused is not None
    assert refused.code is ErrorCode.PROMPT_TOO_LONG
    assert stream.refusal(Chosen(0, Started(1))) is None


def test_a_failure_is_in_openais_words() -> None:
    frame = failure(TandemError(ErrorCode.PROMPT_TOO_LONG, "prompt is too long", param="messages"))
    assert list(chunks(frame)) == [
        {
            "error": {
                "message": "prompt is too long",
                "type": "invalid_request_error",
                "param": "messages",
                "code": "context_length_exceeded",
            }
        }
    ]


def test_a_quiet_stream_is_kept_alive_by_comments() -> None:
    assert ChunkStream(make_shape()).keep_alive(begun=False) == COMMENT
    assert ChunkStream(make_shape()).keep_alive(begun=True) == COMMENT


@given(
    st.lists(
        st.one_of(
            st.builds(TextDelta, st.text(min_size=1)),
            st.builds(ThinkingDelta, st.text(min_size=1)),
        )
    )
)
def test_the_sdk_reads_the_same_from_both_forms(events: list[Event]) -> None:
    run = run_of(*events)
    texts = "".join(
        part.choices[0].delta.content or "" for part in read_stream(stream_of(run)) if part.choices
    )
    whole = read_whole(completion([answer_of(run)], make_shape()))
    assert whole.choices[0].message.content == texts
