"""From canonical events to the Messages answer, read back by the official SDK."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic.types import MessageParam
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.dialects.anthropic.encode import PING, MessageStream, failure, message
from inference.errors import ErrorCode, TandemError
from inference.events import Event, Failed, Finished, FinishReason, Started, TextDelta, Usage
from inference.fold import fold

ID, MODEL, REQUEST_ID = "msg_1", "smollm2", "req_1"
USAGE = Usage(
    prompt_tokens=12, cached_tokens=8, cache_written_tokens=3, output_tokens=5, thinking_tokens=2
)
TOTAL = {
    "input_tokens": 1,
    "cache_creation_input_tokens": 3,
    "cache_read_input_tokens": 8,
    "output_tokens": 5,
    "cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 0},
    "output_tokens_details": {"thinking_tokens": 2},
}
END = Finished(reason=FinishReason.END, usage=USAGE)
ASK: list[MessageParam] = [{"role": "user", "content": "hi"}]

ENDINGS = [
    END,
    Finished(reason=FinishReason.LENGTH, usage=USAGE),
    Finished(reason=FinishReason.STOP_SEQUENCE, usage=USAGE, stop_sequence="STOP\u2028"),
    Finished(reason=FinishReason.TOOL_USE, usage=USAGE),
    Finished(reason=FinishReason.REFUSAL, usage=USAGE),
]


def run_of(*texts: str, end: Event = END) -> list[Event]:
    return [Started(12), *map(TextDelta, texts), end]


def stream_of(events: Iterable[Event]) -> bytes:
    stream = MessageStream(ID, MODEL, REQUEST_ID)
    return b"".join(map(stream.feed, events))


def frames(stream: bytes) -> Iterator[dict[str, Any]]:
    """Read frames as the strictest client does: by Unicode lines, with the event's name."""
    text = stream.decode()
    assert text.endswith("\n\n")
    for frame in text.removesuffix("\n\n").split("\n\n"):
        name, data = frame.splitlines()
        payload = json.loads(data.removeprefix("data: "))
        assert name == f"event: {payload['type']}"
        yield payload


async def message_of(events: Sequence[Event]) -> bytes:
    async def feed() -> AsyncIterator[Event]:
        for event in events:
            yield event

    return message(await fold(feed()), ID, MODEL)


@contextmanager
def sdk(content: bytes, content_type: str) -> Iterator[anthropic.Anthropic]:
    """Yield the SDK's client of a server that answers everything with `content`."""
    response = httpx2.Response(200, headers={"content-type": content_type}, content=content)
    with (
        httpx2.Client(transport=httpx2.MockTransport(lambda _request: response)) as http,
        anthropic.Anthropic(
            api_key="k", base_url="http://tandem", http_client=http, max_retries=0
        ) as client,
    ):
        yield client


def folded_by_sdk(stream: bytes) -> anthropic.types.Message:
    with (
        sdk(stream, "text/event-stream") as client,
        client.messages.stream(model=MODEL, max_tokens=9, messages=ASK) as answer,
    ):
        return answer.get_final_message()


def read_by_sdk(body: bytes) -> anthropic.types.Message:
    with sdk(body, "application/json") as client:
        return client.messages.create(model=MODEL, max_tokens=9, messages=ASK)


def shown(message: anthropic.types.Message) -> dict[str, object]:
    """Leave out the one count that the SDK does not take over from `message_delta`."""
    fields = message.to_dict()
    usage = fields["usage"]
    assert isinstance(usage, dict)
    usage.pop("cache_creation", None)
    return fields


def test_it_sends_the_frames_in_anthropics_order() -> None:
    assert list(frames(stream_of(run_of("Pa", "ris")))) == [
        {
            "type": "message_start",
            "message": {
                "id": ID,
                "type": "message",
                "role": "assistant",
                "model": MODEL,
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "stop_details": None,
                "usage": {
                    "input_tokens": 12,
                    "cache_creation_input_tokens": 0,
                    "cache_read_input_tokens": 0,
                    "output_tokens": 0,
                },
            },
        },
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "text", "text": ""},
        },
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": "Pa"},
        },
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": "ris"},
        },
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None, "stop_details": None},
            "usage": TOTAL,
        },
        {"type": "message_stop"},
    ]


async def test_the_whole_message_has_every_key() -> None:
    assert json.loads(await message_of(run_of("Pa", "ris"))) == {
        "id": ID,
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [{"type": "text", "text": "Paris"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "stop_details": None,
        "usage": TOTAL,
    }


@pytest.mark.parametrize(
    ("end", "stop_reason", "stop_sequence"),
    list(
        zip(
            ENDINGS,
            ["end_turn", "max_tokens", "stop_sequence", "tool_use", "refusal"],
            [None, None, "STOP\u2028", None, None],
            strict=True,
        )
    ),
)
async def test_both_forms_say_why_the_answer_ended(
    end: Finished, stop_reason: str, stop_sequence: str | None
) -> None:
    events = run_of("a", end=end)
    for answer in (folded_by_sdk(stream_of(events)), read_by_sdk(await message_of(events))):
        assert answer.stop_reason == stop_reason
        assert answer.stop_sequence == stop_sequence


@pytest.mark.parametrize("end", ENDINGS)
async def test_an_answer_without_text_has_no_content_in_both_forms(end: Finished) -> None:
    events = run_of(end=end)
    assert [frame["type"] for frame in frames(stream_of(events))] == [
        "message_start",
        "message_delta",
        "message_stop",
    ]
    folded = folded_by_sdk(stream_of(events))
    assert folded.content == []
    assert shown(folded) == shown(read_by_sdk(await message_of(events)))


@settings(deadline=None, max_examples=60)
@given(texts=st.lists(st.text(min_size=1), max_size=8), end=st.sampled_from(ENDINGS))
async def test_any_cut_of_the_text_folds_into_the_same_message(
    texts: list[str], end: Finished
) -> None:
    stream = stream_of(run_of(*texts, end=end))
    whole = await message_of(run_of(*filter(None, ["".join(texts)]), end=end))
    assert shown(folded_by_sdk(stream)) == shown(read_by_sdk(whole))
    deltas = [frame["delta"]["text"] for frame in frames(stream) if "block_delta" in frame["type"]]
    assert deltas == texts


@pytest.mark.parametrize("character", ["\n", "\r", "\x85", "\u2028", "\u2029", "\x0b", "\x1c"])
def test_no_line_break_in_the_text_breaks_a_frame(character: str) -> None:
    stream = stream_of(run_of(f"é{character}\n\ndata: x"))
    assert folded_by_sdk(stream).content[0].to_dict()["text"] == f"é{character}\n\ndata: x"
    assert len(list(frames(stream))) == 6


def test_a_run_that_starts_again_is_told_once() -> None:
    stream = MessageStream(ID, MODEL, REQUEST_ID)
    assert stream.feed(Started(12))
    assert stream.feed(Started(12)) == b""
    assert b"content_block_start" in stream.feed(TextDelta("a"))


def test_pings_do_not_disturb_the_sdk() -> None:
    stream = MessageStream(ID, MODEL, REQUEST_ID)
    noisy = b"".join(stream.feed(event) + PING for event in run_of("a", "b"))
    assert folded_by_sdk(noisy) == folded_by_sdk(stream_of(run_of("a", "b")))


@pytest.mark.parametrize("deltas", [(), ("a",)])
def test_a_failure_mid_stream_reaches_the_caller_as_an_error_event(deltas: tuple[str, ...]) -> None:
    failed = Failed(code=ErrorCode.ENGINE_LOST, message="the engine died")
    stream = stream_of(run_of(*deltas, end=failed))
    assert list(frames(stream))[-1]["error"] == {
        "type": "api_error",
        "message": "the engine died",
    }
    with pytest.raises(anthropic.APIStatusError, match="the engine died"):
        folded_by_sdk(stream)


def test_a_failure_found_by_the_gateway_looks_the_same() -> None:
    failed = Failed(code=ErrorCode.TIMEOUT, message="no answer in 600 s")
    error = TandemError(ErrorCode.TIMEOUT, "no answer in 600 s")
    assert failure(error, REQUEST_ID) == stream_of([failed])
