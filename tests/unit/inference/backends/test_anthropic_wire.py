"""From the canonical request to a message's fields."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from inference.backends.anthropic_wire import count_fields, message_fields
from inference.errors import ErrorCode, TandemError
from inference.request import (
    CacheMark,
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
MARK = {"cache_control": {"type": "ephemeral"}}


def fields(
    *messages: str | Message,
    options: UpstreamOptions | None = None,
    changes: dict[str, Any] | None = None,
    reasoning: str = "none",
    **sampling: Any,
) -> dict[str, Any]:
    request = msgspec.structs.replace(make_request(*messages, **sampling), **(changes or {}))
    entry = make_entry(
        id="claude", backend="anthropic", upstream_model="claude-there", reasoning=reasoning
    )
    made = message_fields(request, entry, options or UpstreamOptions())
    decoded: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(made))
    return decoded


def test_it_says_what_there_is_to_say_and_nothing_else() -> None:
    assert fields("Hello.") == {
        "model": "claude-there",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello."}]}],
        "max_tokens": 16,
        "stream": True,
        "temperature": 0.0,
    }


def test_it_carries_what_anthropic_knows_of_sampling() -> None:
    made = fields("Hello.", top_p=0.5, top_k=3, stop=tuple("abcdef"))

    assert (made["top_p"], made["top_k"]) == (0.5, 3)
    assert made["stop_sequences"] == list("abcdef")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seed", 0),
        ("min_p", 0.1),
        ("min_tokens", 3),
        ("frequency_penalty", 0.5),
        ("presence_penalty", -0.5),
        ("repetition_penalty", 1.2),
        ("logit_bias", {"5": 1.0}),
        ("logprobs", 0),
    ],
)
def test_what_anthropic_does_not_know_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(TandemError, match=f"`{name}`") as caught:
        fields("Hello.", **{name: value})

    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert caught.value.param == name


def test_what_changes_nothing_is_carried_by_leaving_it_out() -> None:
    made = fields("Hello.", frequency_penalty=0.0, presence_penalty=0.0, logit_bias={})

    assert made == fields("Hello.")


@pytest.mark.parametrize(("asked", "expected"), [(100_000, 2000), (50, 50)])
def test_a_caller_who_names_no_number_of_tokens_gets_the_operators(
    asked: int, expected: int
) -> None:
    options = UpstreamOptions(default_max_tokens=2000)

    made = fields("Hello.", options=options, max_tokens=asked, cut_to_context=True)

    assert made["max_tokens"] == expected


def test_the_system_prompt_stands_apart_the_operators_first() -> None:
    options = UpstreamOptions(system="Be brief.", parameters={"service_tier": "auto"})

    made = fields(say(Role.SYSTEM, "Be kind."), "Hello.", options=options)

    assert made["system"] == [{"type": "text", "text": "Be brief.\n\nBe kind."}]
    assert [message["role"] for message in made["messages"]] == ["user"]
    assert made["service_tier"] == "auto"


def test_what_the_system_says_later_stays_where_it_is() -> None:
    made = fields("Hello.", say(Role.SYSTEM, "It is late."), "And now?")

    assert "system" not in made
    assert [message["role"] for message in made["messages"]] == ["user", "system", "user"]


def test_history_is_told_in_blocks() -> None:
    made = fields(
        say(Role.USER, "Weather?", "  "),
        Message(
            role=Role.ASSISTANT,
            parts=(
                ThinkingPart("I look."),
                ToolCallPart(id="call:1", name="get_weather", arguments='{"city":"Rome"}'),
                ToolCallPart(id="c2", name="get_weather", arguments="[1"),
            ),
        ),
        Message(
            role=Role.USER,
            parts=(
                ToolResultPart(call_id="call:1", parts=(TextPart("sunny"),), is_error=True),
                ToolResultPart(call_id="c2", parts=()),
                ImagePart(media_type="image/png", data=b"png"),
            ),
        ),
        say(Role.ASSISTANT, " "),
    )

    source = {"type": "base64", "media_type": "image/png", "data": "cG5n"}
    user, assistant, results = (message["content"] for message in made["messages"])
    assert user == [{"type": "text", "text": "Weather?"}]
    assert [block["id"] for block in assistant] == ["call_1", "c2"]
    assert assistant[0]["input"] == {"city": "Rome"}
    assert assistant[1]["input"] == {"__malformed_arguments__": "[1"}
    assert results == [
        {
            "type": "tool_result",
            "tool_use_id": "call_1",
            "content": [{"type": "text", "text": "sunny"}],
            "is_error": True,
        },
        {"type": "tool_result", "tool_use_id": "c2"},
        {"type": "image", "source": source},
    ]


def test_arguments_keep_their_numbers() -> None:
    call = ToolCallPart(id="1", name="f", arguments='{"n": 12345678901234567890.10}')
    request = make_request("Hi.", Message(role=Role.ASSISTANT, parts=(call,)), "Go on.")

    made = message_fields(request, make_entry(backend="anthropic"), UpstreamOptions())

    assert b"12345678901234567890.10" in msgspec.json.encode(made)


def test_tools_and_their_choice_are_carried() -> None:
    tool = {
        "name": "get_weather",
        "description": "The weather.",
        "input_schema": {"type": "object", "properties": {}},
    }
    single = ToolChoice(mode=ToolMode.ANY, parallel=False)
    for choice, expected in [
        (ToolChoice(), {"type": "auto"}),
        (ToolChoice(mode=ToolMode.NONE, parallel=False), {"type": "none"}),
        (single, {"type": "any", "disable_parallel_tool_use": True}),
        (
            ToolChoice(mode=ToolMode.NAMED, name="get_weather"),
            {"type": "tool", "name": "get_weather"},
        ),
    ]:
        made = fields("Hello.", changes={"tools": (WEATHER,), "tool_choice": choice})
        assert made["tools"] == [tool]
        assert made["tool_choice"] == expected


def test_an_output_format_is_carried() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}

    made = fields("Hello.", changes={"output_schema": schema})

    assert made["output_config"] == {"format": {"type": "json_schema", "schema": schema}}


def test_a_cache_mark_stands_on_its_block() -> None:
    turns = (say(Role.SYSTEM, "Rules."), say(Role.USER, "One.", "Two."))
    marked = fields(*turns, changes={"cache_mark": CacheMark(message=1, part=1)})
    in_system = fields(*turns, changes={"cache_mark": CacheMark(message=0, part=0)})
    on_tools = fields(
        *turns, changes={"cache_mark": CacheMark(message=-1, part=0), "tools": (WEATHER,)}
    )

    assert MARK.items() <= marked["messages"][0]["content"][1].items()
    assert MARK.items() <= in_system["system"][0].items()
    assert MARK.items() <= on_tools["tools"][0].items()
    for made in (marked, in_system, on_tools):
        assert msgspec.json.encode(made).count(b"cache_control") == 1


def test_a_mark_stays_on_its_block_behind_the_operators_prompt() -> None:
    options = UpstreamOptions(system="Be brief.")
    mark = CacheMark(message=0, part=0)

    made = fields("One.", "Two.", options=options, changes={"cache_mark": mark})

    assert MARK.items() <= made["messages"][0]["content"][0].items()


def test_an_answer_of_no_tokens_fills_the_cache_with_everything() -> None:
    made = fields("Hello.", max_tokens=0)

    assert made["max_tokens"] == 0
    assert MARK.items() <= made.items()


@pytest.mark.parametrize(
    ("thinking", "budget", "reasoning", "expected"),
    [
        (None, None, "optional", None),
        (False, None, "optional", None),
        (False, None, "default_on", {"type": "disabled"}),
        (True, None, "optional", {"type": "adaptive"}),
        (True, 8, "optional", {"type": "enabled", "budget_tokens": 8}),
        (True, 5000, "optional", {"type": "enabled", "budget_tokens": 15}),
    ],
)
def test_the_switch_of_reasoning_is_carried(
    thinking: bool | None, budget: int | None, reasoning: str, expected: dict[str, Any] | None
) -> None:
    changes = {"thinking": thinking, "thinking_budget_tokens": budget}

    assert fields("Hi.", changes=changes, reasoning=reasoning).get("thinking") == expected


def test_a_round_of_tools_goes_on_without_a_budget_for_thoughts_that_cannot_be_sent() -> None:
    result = Message(role=Role.USER, parts=(ToolResultPart(call_id="1", parts=()),))
    budgeted = {"thinking": True, "thinking_budget_tokens": 8}

    assert "thinking" not in fields("Hi.", result, changes=budgeted)
    assert fields("Hi.", result, changes={"thinking": True})["thinking"] == {"type": "adaptive"}


def test_the_operator_can_take_a_field_out() -> None:
    made = fields("Hello.", options=UpstreamOptions(parameters={"temperature": None}))

    assert "temperature" not in made


def test_a_count_is_asked_for_with_the_prompt_alone() -> None:
    entry = make_entry(id="claude", backend="anthropic")
    options = UpstreamOptions(parameters={"thinking": {"type": "adaptive"}, "service_tier": "auto"})

    made = count_fields(make_request("Hello.", stop=("x",)), entry, options)

    assert made.keys() == {"model", "messages", "thinking"}
