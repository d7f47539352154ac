"""The Chat request: what is accepted, and the words of what is not."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.dialects.chat.wire import SERVING_FIELDS, ChatBody, decode_chat
from inference.errors import ErrorCode, TandemError

TURN: dict[str, Any] = {"role": "user", "content": "hi"}
MINIMAL: dict[str, Any] = {"model": "m", "messages": [TURN]}
FUNCTION: dict[str, Any] = {"type": "function", "function": {"name": "f"}}
CALL: dict[str, Any] = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}}
CALLING: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT: dict[str, Any] = {"role": "tool", "tool_call_id": "c1", "content": "18 degrees"}


def decoded(**fields: Any) -> ChatBody:
    return decode_chat(MINIMAL | fields).body


def refusal(obj: dict[str, Any], **options: Any) -> TandemError:
    with pytest.raises(TandemError) as caught:
        decode_chat(obj, **options)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    return caught.value


@pytest.mark.parametrize(
    "fields",
    [
        {"stop": "END"},
        {"stop": [str(number) for number in range(20)]},
        {"stop": None},
        {"stop": []},
        {"n": 128},
        {"n": 2.0},
        {"temperature": 0},
        {"top_p": 0},
        {"top_k": -1},
        {"seed": -(2**63)},
        {"logit_bias": {"50256": -100}},
        {"logprobs": True, "top_logprobs": 20},
        {"stream": True, "stream_options": {"include_usage": True, "include_obfuscation": False}},
        {"tools": [FUNCTION], "tool_choice": "required"},
        {"tools": [FUNCTION], "tool_choice": FUNCTION},
        {"tool_choice": "none"},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "s"}}},
        {"reasoning": {"effort": "high", "summary": "auto"}},
        {"reasoning_effort": "none"},
        {"modalities": ["text"]},
        {"service_tier": "priority"},
        {"messages": [TURN, CALLING, RESULT]},
        {"messages": [TURN, {"role": "assistant", "content": "", "function_call": None}, TURN]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": ""}]}]},
        {"functions": None, "function_call": None},
    ],
)
def test_it_accepts(fields: dict[str, Any]) -> None:
    assert decode_chat(MINIMAL | fields).ignored == ()


@pytest.mark.parametrize(
    ("fields", "param", "reason"),
    [
        ({"messages": None}, "messages", "invalid_type"),
        ({"messages": []}, "messages", "invalid_value"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "missing_required_parameter"),
        ({"messages": [TURN | {"content": 7}]}, "messages[0].content", "invalid_value"),
        ({"messages": ["hi"]}, "messages[0]", "invalid_type"),
        ({"messages": [TURN | {"role": "function"}]}, "messages[0]", "invalid_value"),
        (
            {"messages": [TURN | {"content": [{"type": "input_audio"}]}]},
            "messages[0].content[0]",
            "invalid_value",
        ),
        (
            {"messages": [TURN | {"content": [{"type": "image_url", "image_url": {}}]}]},
            "messages[0].content[0].image_url.url",
            "missing_required_parameter",
        ),
        (
            {"messages": [TURN | {"role": "system", "content": [{"type": "image_url"}]}]},
            "messages[0].content[0]",
            "invalid_value",
        ),
        (
            {"messages": [{"role": "assistant", "function_call": {"name": "f"}}]},
            "messages[0].function_call",
            "invalid_value",
        ),
        ({"max_tokens": 0}, "max_tokens", "invalid_value"),
        ({"max_completion_tokens": "9"}, "max_completion_tokens", "invalid_type"),
        ({"temperature": 2.5}, "temperature", "invalid_value"),
        ({"n": 129}, "n", "invalid_value"),
        ({"stop": ["a", ""]}, "stop[1]", "invalid_value"),
        ({"stop": ["a"] * 257}, "stop", "invalid_value"),
        ({"seed": 2**63}, "seed", "invalid_value"),
        ({"logit_bias": {"5": 101}}, "logit_bias.5", "invalid_value"),
        ({"top_logprobs": 21, "logprobs": True}, "top_logprobs", "invalid_value"),
        ({"top_logprobs": 1}, "top_logprobs", "invalid_value"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "invalid_value"),
        ({"min_tokens": 9, "max_tokens": 8}, "min_tokens", "invalid_value"),
        ({"tools": []}, "tools", "invalid_value"),
        ({"tools": [FUNCTION, FUNCTION]}, "tools[1].function.name", "invalid_value"),
        ({"tools": [{"type": "custom"}]}, "tools[0]", "invalid_value"),
        ({"tool_choice": "any"}, "tool_choice", "invalid_value"),
        ({"tool_choice": {"type": "custom"}}, "tool_choice", "invalid_value"),
        ({"response_format": {"type": "xml"}}, "response_format", "invalid_value"),
        (
            {"response_format": {"type": "json_schema"}},
            "response_format.json_schema",
            "missing_required_parameter",
        ),
        ({"modalities": ["audio"]}, "modalities[0]", "invalid_value"),
        ({"reasoning_effort": "huge"}, "reasoning_effort", "invalid_value"),
        ({"functions": [{"name": "f"}]}, "functions", "invalid_value"),
        ({"messages": [TURN, CALLING]}, "messages[1].tool_calls", "invalid_value"),
        ({"messages": [TURN, CALLING, TURN]}, "messages[1].tool_calls", "invalid_value"),
        ({"messages": [TURN, RESULT]}, "messages[1].tool_call_id", "invalid_value"),
        (
            {"messages": [TURN, CALLING, RESULT, RESULT]},
            "messages[3].tool_call_id",
            "invalid_value",
        ),
    ],
)
def test_it_names_what_is_wrong(fields: dict[str, Any], param: str, reason: str) -> None:
    error = refusal(MINIMAL | fields)
    assert (error.param, error.reason) == (param, reason)
    assert error.message.startswith(f"{param}: ")


def test_a_missing_field_is_named() -> None:
    error = refusal({"messages": [TURN]})
    assert error.message == "model: Field required"
    assert (error.param, error.reason) == ("model", "missing_required_parameter")


def test_a_refusal_of_unknown_kinds_names_the_kind() -> None:
    said = refusal(MINIMAL | {"messages": [TURN | {"content": [{"type": "file"}]}]})
    assert said.message == "messages[0].content[0]: Unsupported content part type: 'file'"
    said = refusal(MINIMAL | {"messages": [TURN | {"role": "function"}]})
    assert said.message == "messages[0]: Unsupported message role: 'function'"


def test_calls_without_results_are_named() -> None:
    assert "c1" in refusal(MINIMAL | {"messages": [TURN, CALLING]}).message


@pytest.mark.parametrize("name", sorted(SERVING_FIELDS))
def test_fields_that_only_tune_serving_are_accepted(name: str) -> None:
    assert decode_chat(MINIMAL | {name: "x"}, "reject").ignored == ()


def test_fields_without_effect_are_told() -> None:
    body = MINIMAL | {
        "best_of": 2,
        "store": True,
        "audio": None,
        "chat_template_kwargs": {"enable_thinking": True, "tone": "dry"},
        "messages": [TURN | {"name": "Ada"}],
    }
    ignored = decode_chat(body).ignored
    assert ignored == ("best_of", "chat_template_kwargs.tone", "store", "messages[0].name")


def test_fields_without_effect_are_refused_where_the_operator_says_so() -> None:
    error = refusal(MINIMAL | {"best_of": 2}, unknown="reject")
    assert error.param == "best_of"
    assert "UNKNOWN_FIELDS" in error.message


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({}, True),
        ({"include_reasoning": False}, False),
        ({"reasoning": {"exclude": True}}, False),
        ({"reasoning": {"exclude": False}}, True),
    ],
)
def test_reasoning_is_shown_unless_it_is_not_wanted(fields: dict[str, Any], shown: bool) -> None:
    assert decoded(**fields).shows_reasoning is shown


def test_only_flex_is_another_tier() -> None:
    assert decoded(service_tier="flex").wants_flex
    assert not decoded(service_tier="auto").wants_flex
    assert not decoded().wants_flex
