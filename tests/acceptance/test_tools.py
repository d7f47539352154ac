"""Tools through the official SDK: calls, their arguments, their results, and forced choices."""

from __future__ import annotations

from typing import Any

import anthropic
import openai
import pytest
from anthropic.types import Message, ToolUseBlock

from tests.acceptance.client import body, script

pytestmark = [pytest.mark.acceptance, pytest.mark.every_route]

CITIES = ["Paris", "Rome"]
WEATHER = {
    "name": "get_weather",
    "description": "Tell the weather of a city.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"enum": CITIES}, "is_detailed": {"type": "boolean"}},
        "required": ["city", "is_detailed"],
        "additionalProperties": False,
    },
}
PING = {"name": "ping", "input_schema": {"type": "object", "properties": {}}}
CALL = {"name": "get_weather", "arguments": ['{"city": "Pa', 'ris", "is_', 'detailed": true}']}
SAID = {"city": "Paris", "is_detailed": True}

either_way = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


@pytest.fixture(scope="module")
def real_model(real_engine: str) -> str:
    """Return a model with a vLLM engine, without its ways: test_upstream_vllm has those."""
    return real_engine


def answer(sdk: anthropic.Anthropic, asked: dict[str, Any], *, streamed: bool) -> Message:
    if not streamed:
        message: Message = sdk.messages.create(**asked)
        return message
    with sdk.messages.stream(**asked) as stream:
        return stream.get_final_message()


def play(model: str, **directives: Any) -> dict[str, Any]:
    """Return the SDK's arguments for an answer by script, with tools at hand."""
    return body(model, script(text="", **directives), tools=[WEATHER, PING])


def calls_of(message: Message) -> list[ToolUseBlock]:
    return [block for block in message.content if block.type == "tool_use"]


def test_a_model_that_calls_tools_is_listed_as_one(
    sdk: anthropic.Anthropic, chat: openai.OpenAI, model: str
) -> None:
    by_anthropic = (sdk.models.retrieve(model), *sdk.models.list())
    by_openai = (chat.models.retrieve(model), *chat.models.list())
    rows: list[dict[str, Any]] = [
        *(row.to_dict() for row in by_anthropic if row.id == model),
        *(row.to_dict() for row in by_openai if row.id == model),
    ]
    assert [row["capabilities"]["tools"] for row in rows] == [{"supported": True}] * 4


@either_way
def test_a_call_has_its_name_and_arguments(
    sdk: anthropic.Anthropic, model: str, streamed: bool
) -> None:
    message = answer(sdk, play(model, tool_calls=[CALL]), streamed=streamed)
    (call,) = message.content
    assert isinstance(call, ToolUseBlock)
    assert (call.name, call.input) == ("get_weather", SAID)
    assert call.id.startswith("toolu_")
    assert message.stop_reason == "tool_use"


@either_way
def test_text_comes_before_a_call(sdk: anthropic.Anthropic, model: str, streamed: bool) -> None:
    asked = body(model, script(text="Let me see.", tool_calls=[CALL]), tools=[WEATHER])
    text, call = answer(sdk, asked, streamed=streamed).content
    assert text.type == "text"
    assert text.text == "Let me see."
    assert call.type == "tool_use"


def test_arguments_arrive_piece_by_piece(sdk: anthropic.Anthropic, model: str) -> None:
    with sdk.messages.stream(**play(model, tool_calls=[CALL])) as stream:
        pieces = [event.partial_json for event in stream if event.type == "input_json"]
    assert len(pieces) > 1
    assert "".join(pieces) == "".join(CALL["arguments"])


@either_way
def test_parallel_calls_are_blocks_of_their_own(
    sdk: anthropic.Anthropic, model: str, streamed: bool
) -> None:
    asked = play(model, tool_calls=[CALL, {"name": "ping"}])
    message = answer(sdk, asked, streamed=streamed)
    first, second = calls_of(message)
    assert (first.name, first.input) == ("get_weather", SAID)
    assert (second.name, second.input) == ("ping", {})
    assert first.id != second.id
    assert message.stop_reason == "tool_use"


@either_way
def test_parallel_calls_can_be_switched_off(
    sdk: anthropic.Anthropic, model: str, streamed: bool
) -> None:
    asked = play(model, tool_calls=[CALL, {"name": "ping"}])
    asked["tool_choice"] = {"type": "auto", "disable_parallel_tool_use": True}
    message = answer(sdk, asked, streamed=streamed)
    assert [call.name for call in calls_of(message)] == ["get_weather"]
    assert message.stop_reason == "tool_use"


@either_way
@pytest.mark.parametrize(
    "arguments",
    [
        ['{"city": "Paris", ', '"is_detailed": true,', "}"],
        ["{'city': 'Par", "is', 'is_detailed': true}"],
        ['{"city": "Paris", "is_de', 'tailed": True}'],
        ['{"city": "Paris", "is_detailed": true'],
    ],
    ids=["trailing comma", "single quotes", "Python's word", "no end"],
)
def test_malformed_arguments_are_repaired(
    sdk: anthropic.Anthropic, model: str, streamed: bool, arguments: list[str]
) -> None:
    asked = play(model, tool_calls=[{"name": "get_weather", "arguments": arguments}])
    (call,) = calls_of(answer(sdk, asked, streamed=streamed))
    assert call.input == SAID


def with_result(asked: dict[str, Any], message: Message, **result: Any) -> dict[str, Any]:
    """Go on with the conversation: the answer as it came, then the call's result."""
    (call,) = calls_of(message)
    content = [{"type": "tool_result", "tool_use_id": call.id} | result]
    turns = [
        {"role": "assistant", "content": message.content},
        {"role": "user", "content": content},
    ]
    return asked | {"messages": [*asked["messages"], *turns]}


@pytest.mark.parametrize(
    "result",
    [
        {"content": "18 degrees"},
        {"content": [{"type": "text", "text": "18 degrees"}], "is_error": False},
        {"content": "no such city", "is_error": True},
        {},
    ],
    ids=["text", "blocks", "error", "silent"],
)
def test_a_result_goes_back_to_the_model(
    sdk: anthropic.Anthropic, model: str, result: dict[str, Any]
) -> None:
    asked = play(model, tool_calls=[CALL])
    following = with_result(asked, sdk.messages.create(**asked), **result)
    following["messages"][-1]["content"].append({"type": "text", "text": script(text="Mild.")})
    message = sdk.messages.create(**following)
    (text,) = message.content
    assert text.type == "text"
    assert text.text == "Mild."
    assert message.stop_reason == "end_turn"


def test_a_result_without_its_call_is_refused(sdk: anthropic.Anthropic, model: str) -> None:
    asked = play(model, tool_calls=[CALL])
    following = with_result(asked, sdk.messages.create(**asked), tool_use_id="toolu_stray")
    with pytest.raises(anthropic.BadRequestError) as caught:
        sdk.messages.create(**following)
    assert "messages.2.content.0.tool_use_id" in caught.value.message
    assert "toolu_stray" in caught.value.message


@pytest.mark.engine
@either_way
@pytest.mark.parametrize("choice", [{"type": "tool", "name": "get_weather"}, {"type": "any"}])
def test_a_real_model_is_made_to_call(
    sdk: anthropic.Anthropic, real_model: str, streamed: bool, choice: dict[str, Any]
) -> None:
    asked = body(real_model, "What is the weather in Rome?", max_tokens=200, tools=[WEATHER])
    asked |= {
        "tool_choice": choice | {"disable_parallel_tool_use": True},
        "extra_body": {"temperature": 0},
    }
    message = answer(sdk, asked, streamed=streamed)
    (call,) = message.content
    assert isinstance(call, ToolUseBlock)
    assert call.name == "get_weather"
    assert call.input.keys() == {"city", "is_detailed"}
    assert call.input["city"] in CITIES
    assert isinstance(call.input["is_detailed"], bool)
    assert message.stop_reason == "tool_use"
    following = with_result(asked, message, content="18 degrees") | {"tool_choice": "none"}
    assert sdk.messages.create(**following).stop_reason in ("end_turn", "max_tokens")
