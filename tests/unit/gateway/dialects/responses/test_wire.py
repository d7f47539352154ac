"""What a Responses request may say, and the words for what it may not."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.dialects.responses.wire import DecodedResponses, decode
from inference.errors import ErrorCode, TandemError


def read(**fields: Any) -> DecodedResponses:
    return decode({"model": "m", "input": "hi"} | fields)


def refused(**fields: Any) -> tuple[str | None, str]:
    with pytest.raises(TandemError) as caught:
        read(**fields)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    return caught.value.param, caught.value.message


WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object"}}


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"model": None}, "model", "valid string"),
        ({"input": None}, "input", "Field required"),
        ({"input": []}, "input", "must not be empty"),
        ({"input": ""}, "input", "must not be empty"),
        ({"input": 5}, "input", "a string or a list of items"),
        ({"input": [{"role": "user"}]}, "input[0].content", "Field required"),
        ({"input": [{"role": "bot", "content": "hi"}]}, "input[0].role", "'user'"),
        ({"input": [{"type": "web_search_call"}]}, "input[0]", "Unsupported input item type"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]},
            "input[0].content[0]",
            "Unsupported content part type: 'input_file'",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]},
            "input[0].content[0].image_url",
            "Field required",
        ),
        ({"max_output_tokens": 0}, "max_output_tokens", "greater than or equal to 1"),
        ({"max_output_tokens": "5"}, "max_output_tokens", "valid integer"),
        ({"temperature": 2.5}, "temperature", "less than or equal to 2"),
        ({"top_p": 0}, "top_p", "greater than 0"),
        ({"top_logprobs": 21}, "top_logprobs", "less than or equal to 20"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.name", "Field required"),
        ({"text": {"format": {"type": "xml"}}}, "text.format", "xml"),
        ({"tools": [{"type": "function"}]}, "tools[0].name", "Field required"),
        ({"tools": [{"name": "f"}]}, "tools[0].type", "Field required"),
        ({"tools": [WEATHER, WEATHER]}, "tools[1].name", "must be unique"),
        ({"tool_choice": "any"}, "tool_choice", "'required'"),
        ({"tool_choice": {"type": "file_search"}}, "tool_choice", "file_search"),
        ({"conversation": "conv_1"}, "conversation", "previous_response_id"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt", "instructions"),
        ({"metadata": {str(n): "" for n in range(17)}}, "metadata", "at most 16"),
        ({"truncation": "middle"}, "truncation", "'auto' or 'disabled'"),
    ],
)
def test_it_refuses_what_is_wrong_by_its_path(
    fields: dict[str, Any], param: str, words: str
) -> None:
    named, message = refused(**fields)

    assert named == param
    assert message.startswith(f"{param}: ")
    assert words in message


def test_a_previous_response_stands_for_an_input() -> None:
    body, _ = decode({"model": "m", "previous_response_id": "resp_1"})

    assert body.previous_response_id == "resp_1"


def test_what_has_no_effect_is_listed() -> None:
    decoded = read(
        best_of=3,
        moderation={"model": "m"},
        max_tool_calls=3,
        truncation="auto",
        include=["reasoning.encrypted_content"],
        top_logprobs=2,
        tools=[WEATHER, {"type": "web_search"}, {"type": "namespace", "name": "n", "tools": []}],
        conversation=None,
        prompt_cache_key="k",
    )

    assert decoded.ignored == (
        "best_of",
        "max_tool_calls",
        "moderation",
        "include[0]",
        "top_logprobs",
        "truncation",
        "tools[1]",
        "tools[2]",
    )


def test_what_has_no_effect_is_refused_where_the_operator_says_so() -> None:
    with pytest.raises(TandemError) as caught:
        decode({"model": "m", "input": "hi", "best_of": 3}, "reject")

    assert caught.value.param == "best_of"


def test_what_only_tunes_serving_is_accepted() -> None:
    decoded = read(
        user="u",
        safety_identifier="s",
        prompt_cache_key="k",
        service_tier="priority",
        stream_options={"include_obfuscation": False},
        background_options={"completion_window": "2h"},
        metadata={"completion_window": "24h", "n": 1},
        text={"verbosity": "low"},
        reasoning={"effort": "low", "summary": "auto", "context": "auto"},
        tools=[],
        tool_choice="auto",
    )

    assert decoded.ignored == ()


def test_tools_may_come_in_the_shape_of_chat() -> None:
    function = {"name": "weather", "parameters": {"type": "object"}}
    body, ignored = read(
        tools=[{"type": "function", "function": function}],
        tool_choice={"type": "function", "function": {"name": "weather"}},
    )

    assert ignored == ()
    assert body.tools is not None
    assert body.tools[0].name == "weather"  # type: ignore[union-attr]


def test_it_is_stored_unless_told_otherwise() -> None:
    assert read().body.wants_store
    assert not read(store=False).body.wants_store
