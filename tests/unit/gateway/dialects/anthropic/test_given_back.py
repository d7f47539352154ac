"""An answer that a client gives back, as it came, is what the model said."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from anthropic import Anthropic
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.dialects.anthropic.encode import MessageStream, message
from gateway.dialects.anthropic.parse import to_request
from gateway.dialects.anthropic.wire import decode_messages
from gateway.dialects.context import ParseContext
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
from inference.request import Part, TextPart, ThinkingPart, ToolCallPart

CONTEXT = ParseContext(request_id="r", model="m", deadline_s=1)
USAGE = Usage(prompt_tokens=1, cached_tokens=0, output_tokens=1)
END = Finished(reason=FinishReason.END, usage=USAGE)
# Whatever a model may think: spaces, line breaks of every kind, signs of every script.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


def given_back(content: Any, *more: dict[str, Any]) -> tuple[Part, ...]:
    """Return the parts that the model is shown of an answer in a conversation's history."""
    turns = [{"role": "user", "content": "go"}, {"role": "assistant", "content": content}, *more]
    body = decode_messages({"model": "m", "max_tokens": 5, "messages": turns}).body
    return to_request(body, CONTEXT).messages[1].parts


async def whole(events: list[Event]) -> Any:
    """Return the content of the whole answer."""

    async def feed() -> AsyncIterator[Event]:
        for event in events:
            yield event

    return json.loads(message(await fold(feed()), "msg_1", "m"))["content"]


def streamed(events: list[Event]) -> Any:
    """Return the content that the SDK makes of the stream."""
    encoder = MessageStream("msg_1", "m", "req_1")
    response = httpx2.Response(
        200,
        headers={"content-type": "text/event-stream"},
        content=b"".join(map(encoder.feed, events)),
    )
    transport = httpx2.MockTransport(lambda _request: response)
    with (
        httpx2.Client(transport=transport) as http,
        Anthropic(api_key="k", base_url="http://tandem", http_client=http) as client,
        client.messages.stream(
            model="m", max_tokens=9, messages=[{"role": "user", "content": "go"}]
        ) as answer,
    ):
        return [block.to_dict() for block in answer.get_final_message().content]


@settings(max_examples=60)
@given(thought=TEXTS, said=TEXTS)
async def test_bug_23_thinking_is_given_back_byte_for_byte(thought: str, said: str) -> None:
    events: list[Event] = [Started(1), *map(ThinkingDelta, thought), TextDelta(said), END]
    for content in (await whole(events), streamed(events)):
        assert given_back(content) == (ThinkingPart(thought), TextPart(said))


@pytest.mark.parametrize("signature", ["c2lnbmVkIGJ5IG90aGVycw==", "", None])
def test_bug_23_thinking_with_a_foreign_signature_is_given_back_byte_for_byte(
    signature: str | None,
) -> None:
    thought = " Hm.\r\n\u2028\tYes \x00"
    block = {"type": "thinking", "thinking": thought, "signature": signature}
    assert given_back([block]) == (ThinkingPart(thought),)


async def test_a_call_is_given_back_with_its_id() -> None:
    call: list[Event] = [ToolCallStarted(id="1-2-3", name="f"), ToolCallDelta('{"a":"\u00e9"}')]
    events: list[Event] = [Started(1), *call, END]
    result = {"type": "tool_result", "tool_use_id": "toolu_123", "content": "ok"}
    for content in (await whole(events), streamed(events)):
        parts = given_back(content, {"role": "user", "content": [result]})
        assert parts == (ToolCallPart(id="toolu_123", name="f", arguments='{"a":"\u00e9"}'),)
