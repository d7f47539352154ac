"""From the canonical request to a chat completion's fields."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from inference.backends.openai_wire import chat_fields
from inference.errors import ErrorCode, TandemError
from inference.request import (
    GenerationRequest,
    ImagePart,
    Message,
    Role,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolChoice,
    ToolMode,
    ToolResultPart,
)
from inference.upstreams import UpstreamOptions
from tests.contracts.requests import make_entry, make_request, say

WEATHER = Tool(name="get_weather", schema={"properties": {}}, description="The weather.")
ENTRY = make_entry(id="gpt", backend="openai", upstream_model="gpt-there")


def fields(
    *messages: str | Message,
    options: UpstreamOptions | None = None,
    changes: dict[str, Any] | None = None,
    **sampling: Any,
) -> dict[str, Any]:
    request = msgspec.structs.replace(make_request(*messages, **sampling), **(changes or {}))
    return chat_fields(request, ENTRY, options or UpstreamOptions())


def test_it_says_what_there_is_to_say_and_nothing_else() -> None:
    assert fields("Hello.") == {
        "model": "gpt-there",
        "messages": [{"role": "user", "content": "Hello."}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.0,
        "max_completion_tokens": 16,
    }


def test_a_model_without_another_name_upstream_keeps_its_own() -> None:
    entry = make_entry(id="gpt", backend="openai")

    assert chat_fields(make_request("Hello."), entry, UpstreamOptions())["model"] == "gpt"


def test_it_carries_what_openai_knows_of_sampling() -> None:
    sampling: dict[str, Any] = {
        "top_p": 0.5,
        "seed": 7,
        "frequency_penalty": 0.1,
        "presence_penalty": 0.2,
        "logit_bias": {"5": 1.0},
    }

    assert sampling.items() <= fields("Hello.", **sampling).items()
    scored = fields("Hello.", logprobs=3)
    assert (scored["logprobs"], scored["top_logprobs"]) == (True, 3)


def test_a_caller_who_names_no_number_of_tokens_gets_the_upstreams() -> None:
    assert "max_completion_tokens" not in fields("Hello.", cut_to_context=True)


def test_no_more_stop_texts_are_sent_than_are_taken() -> None:
    assert fields("Hello.", stop=tuple("abcdef"))["stop"] == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("top_k", 5), ("min_p", 0.1), ("min_tokens", 3), ("repetition_penalty", 1.2)],
)
def test_what_only_other_servers_take_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(TandemError, match=f"`{name}`") as caught:
        fields("Hello.", **{name: value})

    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert caught.value.param == name
    options = UpstreamOptions(accepts=frozenset({name}))  # type: ignore[arg-type]
    assert fields("Hello.", options=options, **{name: value})[name] == value


def test_what_changes_nothing_is_no_reason_to_refuse() -> None:
    sampling: dict[str, Any] = {"min_p": 0.0, "min_tokens": 0, "repetition_penalty": 1.0}

    assert not sampling.keys() & fields("Hello.", **sampling).keys()


def test_it_refuses_to_answer_nothing() -> None:
    with pytest.raises(TandemError, match="max_tokens"):
        fields("Hello.", max_tokens=0)


def test_defaults_of_the_catalogue_fill_in_and_never_refuse() -> None:
    entry = make_entry(backend="openai", default_sampling={"temperature": 0.3, "top_k": 5})
    request = make_request("Hello.", temperature=None)

    made = chat_fields(request, entry, UpstreamOptions())

    assert made["temperature"] == 0.3
    assert "top_k" not in made


def test_the_operators_parameters_win() -> None:
    options = UpstreamOptions(parameters={"temperature": 1, "top_k": 3, "service_tier": "flex"})

    made = fields("Hello.", options=options, top_k=9)

    assert options.parameters.items() <= made.items()


def test_the_operator_can_take_a_field_out() -> None:
    options = UpstreamOptions(parameters={"temperature": None})

    assert "temperature" not in fields("Hello.", options=options)


def test_the_operators_prompt_comes_before_the_callers() -> None:
    options = UpstreamOptions(system="Be brief.")

    assert fields("Hello.", options=options)["messages"][0] == {
        "role": "system",
        "content": "Be brief.",
    }
    messages = fields(say(Role.SYSTEM, "Be kind."), "Hello.", options=options)["messages"]
    assert [message["content"] for message in messages] == ["Be brief.\n\nBe kind.", "Hello."]


def test_tools_and_their_choice_are_carried() -> None:
    tool = {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather.",
            "parameters": {"type": "object", "properties": {}},
        },
    }
    forced = {"type": "function", "function": {"name": "get_weather"}}
    for choice, expected in [
        (ToolChoice(), "auto"),
        (ToolChoice(mode=ToolMode.NONE), "none"),
        (ToolChoice(mode=ToolMode.ANY), "required"),
        (ToolChoice(mode=ToolMode.NAMED, name="get_weather"), forced),
    ]:
        made = fields("Hello.", changes={"tools": (WEATHER,), "tool_choice": choice})
        assert made["tools"] == [tool]
        assert made["tool_choice"] == expected
        assert "parallel_tool_calls" not in made


def test_strict_tools_and_single_calls_are_asked_for() -> None:
    strict = msgspec.structs.replace(WEATHER, strict=True)

    made = fields("Hello.", changes={"tools": (strict,), "tool_choice": ToolChoice(parallel=False)})

    assert made["tools"][0]["function"]["strict"] is True
    assert made["parallel_tool_calls"] is False


def test_an_output_format_is_carried() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}

    assert fields("Hello.", changes={"output_schema": schema})["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": schema, "strict": True},
    }
    plain = fields("Hello.", changes={"output_schema": {"type": "object"}})
    assert plain["response_format"] == {"type": "json_object"}


HISTORY = (
    say(Role.USER, "Weather?"),
    Message(
        role=Role.ASSISTANT,
        parts=(
            ThinkingPart("I look."),
            ToolCallPart(id="c1", name="get_weather", arguments='{"city":"Rome"}'),
        ),
    ),
    Message(
        role=Role.USER,
        parts=(
            ToolResultPart(call_id="c1", parts=(TextPart("sunny"),), is_error=True),
            ImagePart(media_type="image/png", data=b"png"),
        ),
    ),
    Message(role=Role.ASSISTANT, parts=(ThinkingPart("Hm."),)),
)


def test_history_is_told_in_the_shape_that_openai_takes() -> None:
    call = {"name": "get_weather", "arguments": '{"city":"Rome"}'}

    assert fields(*HISTORY)["messages"] == [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": call}]},
        {"role": "tool", "tool_call_id": "c1", "content": "Error: sunny"},
        {
            "role": "user",
            "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,cG5n"}}],
        },
        {"role": "assistant", "content": ""},
    ]


def test_thoughts_go_back_to_servers_that_take_them() -> None:
    options = UpstreamOptions(accepts=frozenset({"reasoning"}))

    messages = fields(*HISTORY, options=options)["messages"]

    assert messages[1]["reasoning"] == "I look."
    assert "reasoning_content" not in messages[1]


def test_the_switch_of_reasoning_and_the_salt_go_to_servers_that_take_them() -> None:
    changes = {"thinking": False, "cache_salt": "salt"}
    options = UpstreamOptions(accepts=frozenset({"chat_template_kwargs", "cache_salt"}))

    made = fields("Hello.", options=options, changes=changes)

    assert made["chat_template_kwargs"] == {"enable_thinking": False, "thinking": False}
    assert made["cache_salt"] == "salt"
    assert not {"chat_template_kwargs", "cache_salt"} & fields("Hello.", changes=changes).keys()


def test_servers_that_know_the_older_name_of_the_limit_get_that() -> None:
    made = fields("Hello.", options=UpstreamOptions(max_tokens_field="max_tokens"))

    assert made["max_tokens"] == 16
    assert "max_completion_tokens" not in made


def test_nothing_of_whose_request_it_is_goes_upstream() -> None:
    request: GenerationRequest = make_request("Hello.", cache_salt="team-salt")

    made = msgspec.json.encode(chat_fields(request, ENTRY, UpstreamOptions()))

    assert request.id.encode() not in made
    assert b"team-salt" not in made
