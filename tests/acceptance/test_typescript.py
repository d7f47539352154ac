"""The official TypeScript SDK against a live gateway: what it sends is taken, what it gets fits."""

from __future__ import annotations

from typing import Any

import pytest

from tests.acceptance.client import body, script
from tests.acceptance.programs import Program
from tests.acceptance.test_images import PNG, inline, show
from tests.acceptance.test_thinking import THOUGHT
from tests.acceptance.test_thinking import asked as ask_thinker
from tests.acceptance.test_tools import CALL, CITIES, PING, SAID, WEATHER, play

pytestmark = [pytest.mark.acceptance, pytest.mark.every_route]

MILD = script(text="Mild.")
CITY = {
    "type": "object",
    "properties": {"name": {"enum": CITIES}, "is_capital": {"type": "boolean"}},
    "required": ["name", "is_capital"],
    "additionalProperties": False,
}


def check_equal(streamed: dict[str, Any], whole: dict[str, Any]) -> None:
    """Check that two messages are the same but for what names them and their calls."""
    for message in (streamed, whole):
        assert message.pop("id").startswith("msg_")
        # Null, or undefined and so left out: nothing was refused.
        assert message.pop("stop_details", None) is None
        for block in message["content"]:
            block.pop("id", None)
    # The SDK's own: it is about structured output.
    assert streamed.pop("parsed_output") is None
    # The SDK takes the counts from a stream's end, but not their break-down by lifetime.
    del whole["usage"]["cache_creation"]
    streamed["usage"].pop("cache_creation", None)
    assert streamed == whole


def test_a_message_is_created(typescript: Program, model: str) -> None:
    message = typescript.run("create", body(model, script(text="Paris.")))
    assert message["model"] == model
    assert message["content"] == [{"type": "text", "text": "Paris."}]
    assert message["stop_reason"] == "end_turn"
    assert message["usage"]["output_tokens"] == 1


def test_a_stream_adds_up_to_the_whole_message(typescript: Program, model: str) -> None:
    asked = body(model, script(text="The capital of France is Paris.", cached_tokens=3))
    streamed = typescript.run("stream", asked)
    assert streamed["heard"]["text"] == "The capital of France is Paris."
    check_equal(streamed["message"], typescript.run("create", asked))


def test_a_streamed_call_adds_up_to_the_whole_message(typescript: Program, model: str) -> None:
    asked = play(model, tool_calls=[CALL])
    streamed = typescript.run("stream", asked)
    assert streamed["heard"]["json"] == "".join(CALL["arguments"])
    check_equal(streamed["message"], typescript.run("create", asked))


def test_parallel_calls_are_blocks_of_their_own(typescript: Program, model: str) -> None:
    asked = play(model, tool_calls=[CALL, {"name": "ping"}])
    whole, streamed = typescript.run("create", asked), typescript.run("stream", asked)["message"]
    first, second = whole["content"]
    assert (first["name"], first["input"]) == ("get_weather", SAID)
    assert (second["name"], second["input"]) == ("ping", {})
    assert first["id"] != second["id"]
    check_equal(streamed, whole)


def test_parallel_calls_can_be_switched_off(typescript: Program, model: str) -> None:
    asked = play(model, tool_calls=[CALL, {"name": "ping"}])
    asked["tool_choice"] = {"type": "auto", "disable_parallel_tool_use": True}
    (call,) = typescript.run("create", asked)["content"]
    assert call["name"] == "get_weather"


def test_a_calls_result_goes_back_to_the_model(typescript: Program, model: str) -> None:
    turns = typescript.run("useTools", play(model, tool_calls=[CALL]), "18 degrees", MILD)
    (call,) = turns["called"]["content"]
    assert call["type"] == "tool_use"
    assert (call["name"], call["input"]) == ("get_weather", SAID)
    assert turns["called"]["stop_reason"] == "tool_use"
    assert turns["answered"]["content"] == [{"type": "text", "text": "Mild."}]
    assert turns["answered"]["stop_reason"] == "end_turn"


@pytest.mark.engine
@pytest.mark.parametrize("choice", [{"type": "tool", "name": "get_weather"}, {"type": "any"}])
def test_a_real_model_is_made_to_call(
    typescript: Program, real_model: str, choice: dict[str, Any]
) -> None:
    asked = body(real_model, "What is the weather in Rome?", max_tokens=200, temperature=0)
    asked |= {"tools": [PING, WEATHER] if "name" in choice else [WEATHER]}
    asked |= {"tool_choice": choice | {"disable_parallel_tool_use": True}}
    turns = typescript.run("useTools", asked, "18 degrees", "Say it in words.")
    (call,) = turns["called"]["content"]
    assert (call["type"], call["name"]) == ("tool_use", "get_weather")
    assert call["input"]["city"] in CITIES
    assert isinstance(call["input"]["is_detailed"], bool)
    assert turns["answered"]["stop_reason"] in ("end_turn", "max_tokens", "tool_use")


@pytest.mark.engine
def test_an_answer_is_parsed_by_its_schema(typescript: Program, real_model: str) -> None:
    asked = body(real_model, "Is Paris the capital of France?", max_tokens=200, temperature=0)
    whole, streamed = typescript.run("parse", asked, CITY)
    assert whole.keys() == {"name", "is_capital"}
    assert whole["name"] in CITIES
    assert isinstance(whole["is_capital"], bool)
    assert streamed == whole


def test_streamed_thinking_adds_up_to_the_whole_message(typescript: Program, gifted: str) -> None:
    asked = ask_thinker(gifted)
    streamed = typescript.run("stream", asked)
    heard, message = streamed["heard"], streamed["message"]
    assert (heard["thinking"], heard["text"]) == (THOUGHT, "Paris.")
    assert [block["type"] for block in message["content"]] == ["thinking", "text"]
    check_equal(message, typescript.run("create", asked))


def test_an_image_reaches_the_model(typescript: Program, gifted: str) -> None:
    used = typescript.run("create", show(gifted, inline()))["usage"]["input_tokens"]
    # The scripted engine counts four bytes as a token.
    assert used > len(PNG) / 4


def test_an_image_is_counted(typescript: Program, gifted: str) -> None:
    asked = show(gifted, inline())
    used = typescript.run("create", asked)["usage"]["input_tokens"]
    counting = {"model": gifted, "messages": asked["messages"]}
    assert typescript.run("countTokens", counting) == {"input_tokens": used}


def test_models_are_listed_page_by_page(typescript: Program, model: str, gifted: str) -> None:
    listed = {entry["id"]: entry for entry in typescript.run("listModels", {})}
    assert {model, gifted} <= listed.keys()
    for name in (model, gifted):
        assert listed[name]["type"] == "model"
        assert typescript.run("retrieveModel", name) == listed[name]
    assert typescript.run("listModels", {"lifecycle": ["deprecated", "retired"]}) == []


def test_an_alias_is_retrieved_as_its_model(typescript: Program, engine_model: str) -> None:
    assert typescript.run("retrieveModel", "scripted")["id"] == engine_model
