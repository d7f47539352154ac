"""Answers that must match a JSON schema, through the official SDK: a real engine keeps to it."""

from __future__ import annotations

import json
from typing import Any, Literal

import anthropic
import pytest
from anthropic.types import Message
from pydantic import BaseModel

from tests.acceptance.client import body, script

pytestmark = [pytest.mark.acceptance, pytest.mark.every_route]

QUESTION = "Is Paris the capital of France?"
SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"enum": ["Paris", "Rome"]},
        "is_capital": {"type": "boolean"},
        "tags": {"type": "array", "items": {"enum": ["big", "old"]}, "minItems": 1, "maxItems": 2},
    },
    "required": ["city", "is_capital", "tags"],
    "additionalProperties": False,
}
UNENFORCEABLE = {
    "type": "object",
    "properties": {"count": {"type": "integer", "multipleOf": 3}},
}


class City(BaseModel):
    """What the SDK makes a schema of, and reads the answer as."""

    name: Literal["Paris", "Rome"]
    is_capital: bool


@pytest.fixture(scope="module")
def real_model(real_engine: str) -> str:
    """Return a model with a vLLM engine, without its ways: test_upstream_vllm has those."""
    return real_engine


def ask(model: str, **fields: Any) -> dict[str, Any]:
    return body(model, QUESTION, extra_body={"temperature": 0}) | {"max_tokens": 200} | fields


def in_format(schema: dict[str, Any]) -> dict[str, Any]:
    return {"format": {"type": "json_schema", "schema": schema}}


def check(message: Message) -> None:
    (text,) = message.content
    assert text.type == "text"
    value = json.loads(text.text)
    assert value.keys() == {"city", "is_capital", "tags"}
    assert value["city"] in ("Paris", "Rome")
    assert isinstance(value["is_capital"], bool)
    assert 1 <= len(value["tags"]) <= 2
    assert set(value["tags"]) <= {"big", "old"}
    assert message.stop_reason == "end_turn"


def test_a_format_is_taken_and_the_sdk_reads_the_answer(
    sdk: anthropic.Anthropic, model: str
) -> None:
    said = body(model, script(text='{"name": "Paris", "is_capital": true}'))
    assert sdk.messages.parse(**said, output_format=City).parsed_output == City(
        name="Paris", is_capital=True
    )


@pytest.mark.engine
def test_an_answer_matches_its_schema(sdk: anthropic.Anthropic, real_model: str) -> None:
    check(sdk.messages.create(**ask(real_model, output_config=in_format(SCHEMA))))


@pytest.mark.engine
def test_a_streamed_answer_matches_its_schema(sdk: anthropic.Anthropic, real_model: str) -> None:
    with sdk.messages.stream(**ask(real_model, output_config=in_format(SCHEMA))) as stream:
        check(stream.get_final_message())


@pytest.mark.engine
def test_the_older_field_means_the_same(sdk: anthropic.Anthropic, real_model: str) -> None:
    older = {"temperature": 0, "output_format": in_format(SCHEMA)["format"]}
    check(sdk.messages.create(**ask(real_model, extra_body=older)))


@pytest.mark.engine
def test_the_sdk_parses_an_answer_into_a_class(sdk: anthropic.Anthropic, real_model: str) -> None:
    message = sdk.messages.parse(**ask(real_model), output_format=City)
    assert isinstance(message.parsed_output, City)


@pytest.mark.engine
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    "fields",
    [
        {"output_config": in_format(UNENFORCEABLE)},
        {
            "tools": [{"name": "count", "input_schema": UNENFORCEABLE}],
            "tool_choice": {"type": "tool", "name": "count"},
        },
    ],
    ids=["format", "tool"],
)
def test_a_keyword_that_cannot_be_enforced_is_named(
    sdk: anthropic.Anthropic, real_model: str, streamed: bool, fields: dict[str, Any]
) -> None:
    with pytest.raises(anthropic.BadRequestError, match=r"'multipleOf' at properties\.count"):
        sdk.messages.create(**ask(real_model, **fields), stream=streamed)
