"""The canonical request in vLLM's words."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from inference.backends.vllm_chat import (
    chat_fields,
    chat_messages,
    enforced_schemas,
    may_call,
    must_call,
    system_first,
)
from inference.errors import ErrorCode, TandemError
from inference.request import (
    GenerationRequest,
    ImagePart,
    Message,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolChoice,
    ToolMode,
    ToolResultPart,
)
from tests.contracts.requests import make_entry, make_request, say

ENTRY = make_entry(backend="vllm", tool_parser="hermes")
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
WEATHER = Tool(name="get_weather", description="The weather.", schema=SCHEMA)
STRICT = Tool(name="strict", schema=SCHEMA, strict=True)
IMAGE = ImagePart(media_type="image/png", data=b"png")
IMAGE_URL = {
    "type": "image_url",
    "image_url": {"url": f"data:image/png;base64,{base64.b64encode(b'png').decode()}"},
}
CALL = ToolCallPart(id="1", name="get_weather", arguments='{"a":1}')


def request(**fields: Any) -> GenerationRequest:
    return msgspec.structs.replace(make_request("Hello."), **fields)


def result(*parts: TextPart | ImagePart, is_error: bool = False) -> ToolResultPart:
    return ToolResultPart(call_id="1", parts=parts, is_error=is_error)


def user(*parts: Part) -> Message:
    return Message(role=Role.USER, parts=parts)


def tool_choice(mode: ToolMode, *tools: Tool, **fields: Any) -> dict[str, Any]:
    choice = ToolChoice(mode=mode, name="get_weather" if mode is ToolMode.NAMED else None)
    return chat_fields(request(tools=tools or (WEATHER,), tool_choice=choice, **fields), ENTRY)


def test_text_stays_text() -> None:
    messages = [say(Role.SYSTEM, "Be kind."), say(Role.USER, "a", "b"), say(Role.ASSISTANT, "c")]
    assert list(chat_messages(messages)) == [
        {"role": "system", "content": "Be kind."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
        },
        {"role": "assistant", "content": "c"},
    ]


def test_an_image_is_sent_along_in_its_place() -> None:
    (message,) = chat_messages([user(TextPart("See"), IMAGE, TextPart("this."))])
    assert message["content"] == [
        {"type": "text", "text": "See"},
        IMAGE_URL,
        {"type": "text", "text": "this."},
    ]


def test_thinking_and_calls_are_fields_of_the_assistants_turn() -> None:
    parts = (ThinkingPart("Hm."), TextPart("Let me see."), CALL)
    (message,) = chat_messages([Message(role=Role.ASSISTANT, parts=parts)])
    assert message == {
        "role": "assistant",
        "content": "Let me see.",
        "reasoning": "Hm.",
        "tool_calls": [
            {
                "id": "1",
                "type": "function",
                "function": {"name": "get_weather", "arguments": '{"a":1}'},
            }
        ],
    }


def test_results_are_turns_of_the_tool() -> None:
    messages = [
        Message(role=Role.ASSISTANT, parts=(CALL,)),
        user(result(TextPart("no city"), is_error=True), TextPart("And?")),
    ]
    _, tool, said = chat_messages(messages)
    assert tool == {
        "role": "tool",
        "tool_call_id": "1",
        "content": "Error: no city",
        "name": "get_weather",
    }
    assert said == {"role": "user", "content": "And?"}


def test_bug_09_the_texts_of_a_result_are_joined_by_line() -> None:
    (tool,) = chat_messages([user(result(TextPart("sunny"), TextPart("18 degrees")))])
    assert tool["content"] == "sunny\n18 degrees"


def test_images_of_results_follow_after_all_results() -> None:
    message = user(result(TextPart("one"), IMAGE), result(TextPart("two")), TextPart("And?"))
    one, two, said = chat_messages([message])
    assert (one["content"], two["content"]) == ("one", "two")
    assert said == {"role": "user", "content": [IMAGE_URL, {"type": "text", "text": "And?"}]}


def test_what_is_said_before_a_result_stays_before_it() -> None:
    messages = list(chat_messages([user(TextPart("Here:"), result(TextPart("one")))]))
    assert [message["role"] for message in messages] == ["user", "tool"]


def test_a_request_without_tools_has_no_fields_for_them() -> None:
    fields = chat_fields(request(), ENTRY)
    names = {"tools", "tool_choice", "response_format", "chat_template_kwargs"}
    assert not names & fields.keys()


@pytest.mark.parametrize(
    ("mode", "choice"),
    [
        (ToolMode.AUTO, "auto"),
        (ToolMode.ANY, "required"),
        (ToolMode.NAMED, {"type": "function", "function": {"name": "get_weather"}}),
    ],
)
def test_the_choice_of_tools_is_vllms(mode: ToolMode, choice: object) -> None:
    assert tool_choice(mode)["tool_choice"] == choice


def test_tools_that_must_not_be_called_are_not_shown() -> None:
    assert "tools" not in tool_choice(ToolMode.NONE)


@pytest.mark.parametrize("mode", [ToolMode.ANY, ToolMode.NAMED])
def test_a_forced_call_must_match_the_schema(mode: ToolMode) -> None:
    (tool,) = tool_choice(mode)["tools"]
    assert tool["function"] == {
        "name": "get_weather",
        "description": "The weather.",
        "parameters": SCHEMA,
        "strict": True,
    }


def test_a_call_of_the_models_own_accord_must_match_only_where_asked() -> None:
    tools = tool_choice(ToolMode.AUTO, WEATHER, STRICT)["tools"]
    assert ["strict" in tool["function"] for tool in tools] == [False, True]


def test_beside_an_output_format_every_tool_is_strict() -> None:
    fields = tool_choice(ToolMode.AUTO, output_schema=SCHEMA)
    assert fields["tools"][0]["function"]["strict"]
    assert fields["response_format"]["json_schema"]["schema"] == SCHEMA


def test_arguments_are_an_object_whatever_the_schema_says() -> None:
    (tool,) = tool_choice(ToolMode.ANY, Tool(name="get_weather", schema={}))["tools"]
    assert tool["function"]["parameters"] == {"type": "object"}


@pytest.mark.parametrize("parallel", [True, False])
def test_parallel_calls_are_a_switch(parallel: bool) -> None:
    fields = chat_fields(
        request(tools=(WEATHER,), tool_choice=ToolChoice(parallel=parallel)), ENTRY
    )
    assert fields["parallel_tool_calls"] is parallel


def test_a_model_without_a_tool_parser_cannot_call() -> None:
    with pytest.raises(TandemError, match="model-under-test cannot call tools") as caught:
        chat_fields(request(tools=(WEATHER,)), make_entry(backend="vllm"))
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_tools_are_described_where_the_template_cannot() -> None:
    entry = make_entry(backend="vllm", tool_parser="hermes", describe_tools=True)
    fields = chat_fields(request(tools=(WEATHER,)), entry)
    assert "get_weather" in fields["messages"][0]["content"]
    assert fields["tools"]


def test_no_schema_is_walked_through_that_is_nested_without_end() -> None:
    schema: dict[str, Any] = {}
    for _ in range(5000):
        schema = {"items": schema}
    with pytest.raises(TandemError, match="tool 'deep': the schema is nested too deeply"):
        chat_fields(request(tools=(Tool(name="deep", schema=schema),)), ENTRY)


@pytest.mark.parametrize("thinking", [True, False])
def test_thinking_is_the_templates_switch(thinking: bool) -> None:
    fields = chat_fields(request(thinking=thinking), ENTRY)
    assert fields["chat_template_kwargs"] == {"enable_thinking": thinking, "thinking": thinking}


def test_the_operators_sampling_stands_in_for_the_callers() -> None:
    entry = make_entry(default_sampling={"temperature": 0.6, "top_p": 0.9, "top_k": 20.0})
    own = chat_fields(make_request("Hello.", temperature=0, top_p=0.5, top_k=3), entry)
    default = chat_fields(make_request("Hello.", temperature=None), entry)
    none = chat_fields(make_request("Hello.", temperature=None), ENTRY)
    names = ("temperature", "top_p", "top_k")
    assert [own[name] for name in names] == [0, 0.5, 3]
    assert [default[name] for name in names] == [0.6, 0.9, 20]
    assert [none[name] for name in names] == [None, None, None]


@pytest.mark.parametrize(
    ("fields", "may", "must", "subjects"),
    [
        ({}, False, False, []),
        ({"tools": (WEATHER, STRICT)}, True, False, ["tool 'strict'"]),
        (
            {"tools": (WEATHER,), "tool_choice": ToolChoice(mode=ToolMode.ANY)},
            True,
            True,
            ["tool 'get_weather'"],
        ),
        ({"tools": (STRICT,), "tool_choice": ToolChoice(mode=ToolMode.NONE)}, False, False, []),
        ({"output_schema": SCHEMA}, False, False, ["the output format"]),
    ],
)
def test_it_knows_what_the_answer_must_match(
    fields: dict[str, Any], may: bool, must: bool, subjects: list[str]
) -> None:
    asked = request(**fields)
    assert (may_call(asked), must_call(asked)) == (may, must)
    assert [subject for subject, _ in enforced_schemas(asked)] == subjects


def test_all_that_the_system_says_can_be_put_first() -> None:
    turns = (say(Role.SYSTEM, "a"), say(Role.USER, "b"), say(Role.SYSTEM, "c"), say(Role.USER, "d"))
    moved = system_first(request(messages=turns)).messages
    assert moved == (say(Role.SYSTEM, "a", "c"), say(Role.USER, "b"), say(Role.USER, "d"))


def test_nothing_is_put_first_where_the_system_says_nothing() -> None:
    assert system_first(request()).messages == (say(Role.USER, "Hello."),)
