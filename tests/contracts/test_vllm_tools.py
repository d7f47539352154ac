"""Calls and formats that vLLM is held to, with the default model."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from inference.errors import ErrorCode
from inference.events import Failed, Finished, FinishReason
from inference.fold import fold
from inference.request import (
    GenerationRequest,
    TextPart,
    Tool,
    ToolCallPart,
    ToolChoice,
    ToolMode,
)
from tests.contracts.conftest import Subject
from tests.contracts.requests import collect, make_request
from tests.contracts.test_capabilities import TIME, WEATHER, asked

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="session")]

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
FORCED = ToolChoice(mode=ToolMode.ANY)
QUESTION = "What is the weather in Paris?"


def is_person(text: str) -> bool:
    person = json.loads(text)
    return (
        person.keys() == {"name", "age"}
        and isinstance(person["name"], str)
        and 0 <= person["age"] <= 120
    )


def is_weather(arguments: str) -> bool:
    weather = json.loads(arguments)
    return weather.keys() == {"city", "unit"} and weather["unit"] in ("C", "F")


def with_schema(schema: dict[str, Any]) -> GenerationRequest:
    return asked("Hello.", tools=(Tool(name="odd", schema=schema),), tool_choice=FORCED)


@pytest.mark.parametrize("parallel", [True, False])
async def test_forced_calls_match_the_schemas_of_their_tools(vllm: Subject, parallel: bool) -> None:
    choice = ToolChoice(mode=ToolMode.ANY, parallel=parallel)
    answer = await fold(
        vllm.backend.generate(asked(QUESTION, tools=(WEATHER,), tool_choice=choice))
    )

    calls = [part for part in answer.parts if isinstance(part, ToolCallPart)]
    assert calls
    assert len(calls) == len(answer.parts)
    assert all(is_weather(call.arguments) for call in calls[:1])


async def test_a_schemas_own_definitions_are_found(vllm: Subject) -> None:
    schema = {
        "type": "object",
        "properties": {"unit": {"$ref": "#/$defs/Unit"}},
        "required": ["unit"],
        "additionalProperties": False,
        "$defs": {"Unit": {"enum": ["C", "F"]}},
    }

    answer = await fold(vllm.backend.generate(with_schema(schema)))

    assert isinstance(answer.parts[0], ToolCallPart)
    assert json.loads(answer.parts[0].arguments)["unit"] in ("C", "F")


async def test_it_may_answer_without_a_call(vllm: Subject) -> None:
    answer = await fold(vllm.backend.generate(asked("What is 1 + 1?", tools=(TIME,))))

    assert answer.finished.reason in (FinishReason.END, FinishReason.TOOL_USE)


async def test_the_text_matches_the_output_format(vllm: Subject) -> None:
    answer = await fold(vllm.backend.generate(asked("Who is Ann, 30?", output_schema=PERSON)))

    assert answer.finished.reason is FinishReason.END
    assert is_person(answer.text)


async def test_beside_an_output_format_tools_may_still_be_called(vllm: Subject) -> None:
    answer = await fold(
        vllm.backend.generate(asked("Who is Ann, 30?", output_schema=PERSON, tools=(WEATHER,)))
    )

    match answer.parts[0]:
        case ToolCallPart(arguments=arguments):
            assert is_weather(arguments)
        case TextPart(text=text):
            assert is_person(text)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"properties": {"n": {"type": "integer", "multipleOf": 3}}}, "'multipleOf' at properti"),
        ({"properties": {"n": {"type": "intger"}}}, 'Unsupported type "intger"'),
        ({"properties": {"n": {"type": "string", "pattern": "(["}}}, "Unclosed '['"),
        ({"properties": {"n": {"$ref": "#/$defs/missing"}}}, "#/$defs/missing"),
        ({"properties": ["n"]}, "properties must be an object"),
        ({"properties": {"n": {"enum": []}}}, "enum array must not be empty"),
    ],
    ids=str,
)
async def test_a_schema_that_cannot_be_enforced_is_refused_before_anything_is_generated(
    vllm: Subject, schema: dict[str, Any], words: str
) -> None:
    for request, subject in (
        (with_schema(schema), "tool 'odd': "),
        (asked("Hello.", output_schema={"type": "object", **schema}), "the output format: "),
    ):
        events = await collect(vllm.backend, request)

        (failed,) = events
        assert isinstance(failed, Failed)
        assert failed.code is ErrorCode.INVALID_REQUEST
        assert failed.message.startswith(subject)
        assert words in failed.message


async def test_what_is_not_enforced_need_not_be_enforceable(vllm: Subject) -> None:
    schema = {"properties": {"n": {"type": "integer", "multipleOf": 3}}}
    request = msgspec.structs.replace(with_schema(schema), tool_choice=ToolChoice())

    *_, finished = await collect(vllm.backend, request)

    assert isinstance(finished, Finished)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        {"anyOf": [{"$ref": "#"}]},
        {"type": "string", "pattern": "^((a{1,100}){1,100}){1,100}$"},
        {"type": "string", "pattern": "(" * 900 + "a" + ")" * 900},
        {"type": "string", "minLength": 100_000},
        {"type": "array", "minItems": 100_000, "items": {"type": "string"}},
        {"enum": [f"value {number}" for number in range(5000)]},
        {"type": "integer", "minimum": -(10**30), "maximum": 10**30},
        {"properties": {f"p{number}": {"type": "string"} for number in range(300)}},
        {"type": "string", "pattern": "a\x00b"},
    ],
    ids=lambda schema: str(schema)[:40],
)
async def test_no_schema_harms_the_engine(vllm: Subject, schema: dict[str, Any]) -> None:
    *_, ending = await collect(vllm.backend, asked("Hello.", max_tokens=4, output_schema=schema))

    assert isinstance(ending, Finished | Failed)
    assert isinstance(ending, Finished) or ending.code is ErrorCode.INVALID_REQUEST
    *_, after = await collect(vllm.backend, make_request("Hello.", max_tokens=1))
    assert isinstance(after, Finished)
    assert vllm.backend.failure() is None
