"""Whatever JSON arrives, it is a request or it is refused by name; nothing else can happen."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.dialects.anthropic.parse import image_sources, to_request
from gateway.dialects.anthropic.wire import MessagesBody, decode_count, decode_messages
from gateway.dialects.context import ParseContext
from inference.errors import ErrorCode, TandemError
from inference.request import GenerationRequest, ImagePart

NAMES = st.sampled_from(
    [
        *["type", "text", "role", "content", "source", "url", "data", "media_type", "id", "name"],
        *["input", "tool_use_id", "is_error", "thinking", "cache_control", "ttl", "tool_name"],
        *["input_schema", "function", "parameters", "strict", "schema", "format", "budget_tokens"],
    ]
)
WORDS = st.sampled_from(
    [
        *["text", "image", "tool_use", "tool_result", "thinking", "redacted_thinking", "document"],
        *["base64", "url", "file", "image/png", "ephemeral", "5m", "user", "assistant", "system"],
        *["auto", "any", "tool", "function", "custom", "json_schema", "object", "enabled", "f", ""],
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORDS | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=12,
)
MARK = st.sampled_from([{}, {"cache_control": {"type": "ephemeral"}}])
IDS = st.sampled_from(["x", "y"])
SHOWN = st.sampled_from(
    [
        {"type": "text", "text": "a"},
        {"type": "image", "source": {"type": "url", "url": "https://a/b"}},
    ]
)
BLOCKS = (
    SHOWN
    | st.builds(lambda call_id: {"type": "tool_use", "id": call_id, "name": "f", "input": {}}, IDS)
    | st.builds(
        lambda call_id, content: {
            "type": "tool_result",
            "tool_use_id": call_id,
            "content": content,
        },
        IDS,
        st.none() | st.text(max_size=3) | st.lists(SHOWN, max_size=2),
    )
    | st.sampled_from([{"type": "thinking", "thinking": "hm"}, {"type": "redacted_thinking"}])
)
TURNS = st.lists(
    st.builds(
        lambda role, content: {"role": role, "content": content},
        st.sampled_from(["user", "assistant", "system"]),
        st.lists(st.builds(lambda block, mark: block | mark, BLOCKS, MARK), max_size=4)
        | st.text(max_size=3),
    ),
    max_size=5,
)
FIELDS = st.dictionaries(
    st.sampled_from(sorted(MessagesBody.model_fields.keys() - {"model", "max_tokens"})), JSON
)
CONTEXT = ParseContext(request_id="r", model="m", deadline_s=1)
ENCODE, DECODE = msgspec.msgpack.encode, msgspec.msgpack.Decoder(GenerationRequest).decode


def decode(obj: dict[str, Any]) -> MessagesBody | TandemError:
    try:
        return decode_messages(obj).body
    except TandemError as error:
        return error


def check(obj: dict[str, Any]) -> GenerationRequest | None:
    """Return the canonical request, unless the body is refused with some words."""
    body = decode(obj)
    if isinstance(body, TandemError):
        assert body.code is ErrorCode.INVALID_REQUEST
        assert ": " in body.message
        return None
    images = [ImagePart("image/png", b"x") for _ in image_sources(body)]
    seeing = ParseContext(request_id="r", model="m", deadline_s=1, vision=True)
    assert DECODE(ENCODE(to_request(body, seeing, images)))
    assert dict(decode_count(obj).body) == dict(body)
    return to_request(body, CONTEXT)


@settings(max_examples=300, deadline=None)
@given(fields=FIELDS)
def test_any_value_of_any_field_is_read_or_refused(fields: dict[str, Any]) -> None:
    turns = [{"role": "user", "content": "hi"}]
    check({"model": "m", "max_tokens": 5, "messages": turns} | fields)


@settings(max_examples=500, deadline=None)
@given(turns=TURNS, marked=MARK)
def test_any_conversation_becomes_alternating_turns_that_hold_the_breakpoint(
    turns: list[dict[str, Any]], marked: dict[str, Any]
) -> None:
    request = check({"model": "m", "max_tokens": 5, "messages": turns} | marked)
    if request is None:
        return
    roles = [message.role for message in request.messages]
    assert all(one is not other for one, other in pairwise(roles))
    assert all(message.parts for message in request.messages)
    if mark := request.cache_mark:
        assert request.messages[mark.message].parts[mark.part]
