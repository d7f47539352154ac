"""Whatever JSON arrives, it is a request or it is refused by name; nothing else can happen."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.dialects.context import ParseContext
from gateway.dialects.responses.encode import render
from gateway.dialects.responses.items import input_items
from gateway.dialects.responses.parse import image_sources, put_in, references, to_request
from gateway.dialects.responses.wire import SERVING_FIELDS, ResponsesBody, decode
from gateway.responses.placement import place
from inference.errors import ErrorCode, TandemError
from inference.request import GenerationRequest, ImagePart
from tests.unit.gateway.dialects.responses.runs import ID, shape_of

NAMES = st.sampled_from(
    [
        *["type", "text", "role", "content", "image_url", "id", "call_id", "name", "arguments"],
        *["output", "summary", "format", "schema", "strict", "parameters", "function", "tools"],
        *["effort", "mode", "completion_window", "stream_id", "custom_id", "verbosity"],
    ]
)
WORDS = st.sampled_from(
    [
        *["message", "input_text", "input_image", "function_call", "reasoning", "item_reference"],
        *["user", "assistant", "developer", "auto", "none", "required", "function", "custom"],
        *["allowed_tools", "json_schema", "json_object", "text", "24h", "flex", "f", ""],
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORDS | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=12,
)
IDS = st.sampled_from(["x", "y"])
SHOWN = st.sampled_from(
    [
        {"type": "input_text", "text": "a"},
        {"type": "output_text", "text": "", "annotations": []},
        {"type": "refusal", "refusal": "no"},
        {"type": "input_image", "image_url": "https://a/b"},
    ]
)
SAID = st.text(max_size=3) | st.lists(SHOWN, max_size=3)
ITEMS = st.lists(
    st.builds(
        lambda role, content: {"role": role, "content": content},
        st.sampled_from(["user", "assistant", "system", "developer"]),
        SAID,
    )
    | st.builds(
        lambda call_id, arguments: {
            "type": "function_call",
            "call_id": call_id,
            "name": "f",
            "arguments": arguments,
        },
        IDS,
        st.sampled_from(["", "{}", "{", "[1]", '{"a": 1}']),
    )
    | st.builds(
        lambda call_id, output: {
            "type": "function_call_output",
            "call_id": call_id,
            "output": output,
        },
        IDS,
        SAID,
    )
    | st.sampled_from(
        [
            {"type": "reasoning", "summary": []},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"type": "item_reference", "id": "msg_1"},
        ]
    ),
    max_size=6,
)
FIELDS = st.dictionaries(
    st.sampled_from(sorted((ResponsesBody.model_fields.keys() | SERVING_FIELDS) - {"model"})), JSON
)
REFERENCED = {"msg_1": {"type": "message", "role": "assistant", "content": "Yes?"}}
ENCODE, DECODE = msgspec.msgpack.encode, msgspec.msgpack.Decoder(GenerationRequest).decode


def context(*, vision: bool) -> ParseContext:
    return ParseContext(request_id="r", model="m", deadline_s=1, vision=vision, context_tokens=100)


def read(obj: dict[str, Any]) -> GenerationRequest | TandemError:
    try:
        body = decode(obj).body
        if references(body):
            body = decode(put_in(obj, REFERENCED)).body
        place(obj)
        images = [ImagePart("image/png", b"x") for _ in image_sources(body)]
        return to_request(body, context(vision=True), images)
    except TandemError as error:
        return error


def check(obj: dict[str, Any]) -> GenerationRequest | None:
    """Return the canonical request, unless the body is refused with some words."""
    seen = read(obj)
    if isinstance(seen, TandemError):
        assert seen.code is ErrorCode.INVALID_REQUEST
        assert seen.param
        assert seen.message.startswith(f"{seen.param}: ")
        return None
    assert DECODE(ENCODE(seen))
    msgspec.json.encode(render(shape_of(**obj), "queued"))
    return seen


@settings(max_examples=400, deadline=None)
@given(fields=FIELDS)
def test_any_value_of_any_field_is_read_or_refused(fields: dict[str, Any]) -> None:
    check({"model": "m", "input": "hi"} | fields)


@settings(max_examples=500, deadline=None)
@given(items=ITEMS)
def test_any_conversation_becomes_alternating_turns(items: list[dict[str, Any]]) -> None:
    request = check({"model": "m", "input": items})
    if request is None:
        return
    roles = [message.role for message in request.messages]
    assert all(one is not other for one, other in pairwise(roles))
    assert all(message.parts for message in request.messages)


@settings(max_examples=300, deadline=None)
@given(items=ITEMS)
def test_listed_items_are_told_as_the_input_was(items: list[dict[str, Any]]) -> None:
    request = check({"model": "m", "input": items})
    if request is None:
        return
    assert check({"model": "m", "input": input_items(ID, items)}) == request
