"""Counting through the official SDK: before the call, after it, and what the cache had of it."""

from __future__ import annotations

from typing import Any

import anthropic
import pytest
from anthropic.types import Usage

from tests.acceptance.client import body, script

pytestmark = [pytest.mark.acceptance, pytest.mark.every_route]

QUESTION = "What is the capital of France?"
SYSTEM = "You are a geography teacher."
TOOL = {
    "name": "look_up",
    "description": "Look a country up.",
    "input_schema": {"type": "object", "properties": {"country": {"type": "string"}}},
}
CALLED: list[dict[str, Any]] = [
    {"role": "user", "content": QUESTION},
    {
        "role": "assistant",
        "content": [
            {"type": "tool_use", "id": "toolu_1", "name": "look_up", "input": {"country": "France"}}
        ],
    },
    {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "Paris"}],
    },
]
EPHEMERAL = {"type": "ephemeral"}


def prompt_tokens(usage: Usage) -> int:
    """Return the whole prompt: its three figures never overlap."""
    cached = (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)
    return usage.input_tokens + cached


def counted(sdk: anthropic.Anthropic, asked: dict[str, Any]) -> int:
    fields = {name: value for name, value in asked.items() if name != "max_tokens"}
    tokens: int = sdk.messages.count_tokens(**fields).input_tokens
    return tokens


def test_what_the_cache_had_is_no_input_again(sdk: anthropic.Anthropic, model: str) -> None:
    asked = body(model, script(tokens=1, cached_tokens=5), system=SYSTEM)
    total = counted(sdk, asked)
    usage = sdk.messages.create(**asked).usage
    assert usage.cache_read_input_tokens == 5
    assert usage.input_tokens == total - 5
    with sdk.messages.stream(**asked) as stream:
        streamed = stream.get_final_message().usage
    assert streamed.cache_read_input_tokens == 5
    assert streamed.input_tokens == total - 5


def test_counting_needs_a_known_model(sdk: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError, match="model 'gpt-0' not found"):
        counted(sdk, body("gpt-0", QUESTION))


def test_counting_names_what_is_wrong(sdk: anthropic.Anthropic, model: str) -> None:
    with pytest.raises(anthropic.BadRequestError, match="messages: at least one message"):
        counted(sdk, body(model, "") | {"messages": []})


@pytest.mark.engine
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"system": SYSTEM},
        {"system": [{"type": "text", "text": SYSTEM, "cache_control": EPHEMERAL}]},
        {"tools": [TOOL]},
        {"tools": [TOOL], "tool_choice": {"type": "none"}},
        {"tools": [TOOL], "system": SYSTEM, "messages": CALLED},
    ],
    ids=["plain", "system", "cached", "tools", "tools not used", "results"],
)
def test_a_call_reports_what_was_counted(
    sdk: anthropic.Anthropic, real_model: str, fields: dict[str, Any]
) -> None:
    asked = body(real_model, QUESTION) | fields | {"max_tokens": 1}
    total = counted(sdk, asked)
    assert total > 10
    # The second call finds the first one's prompt in the cache.
    for _ in range(2):
        assert prompt_tokens(sdk.messages.create(**asked).usage) == total
    with sdk.messages.stream(**asked) as stream:
        assert prompt_tokens(stream.get_final_message().usage) == total


@pytest.mark.engine
def test_whatever_the_model_is_told_is_counted(sdk: anthropic.Anthropic, real_model: str) -> None:
    plain = counted(sdk, body(real_model, QUESTION))
    assert counted(sdk, body(real_model, QUESTION, tools=[TOOL])) > plain + 50
    failed = CALLED[-1]["content"][0] | {"is_error": True}
    history = [*CALLED[:-1], {"role": "user", "content": [failed]}]
    succeeded = counted(sdk, body(real_model, "") | {"messages": CALLED})
    assert counted(sdk, body(real_model, "") | {"messages": history}) > succeeded > plain


@pytest.mark.engine
def test_a_marked_system_prompt_is_read_from_the_cache(
    sdk: anthropic.Anthropic, real_model: str
) -> None:
    rules = " ".join(f"Rule {number}: never say {number * 7}." for number in range(60))
    # Whichever way it takes, nobody has said it before.
    text = f"These are the rules of {real_model}. {rules}"
    system = [{"type": "text", "text": text, "cache_control": EPHEMERAL}]
    first, second = (
        sdk.messages.create(**body(real_model, question, system=system) | {"max_tokens": 1}).usage
        for question in (QUESTION, QUESTION)
    )
    assert first.cache_read_input_tokens == 0
    assert first.cache_creation_input_tokens is not None
    assert first.cache_creation_input_tokens > 300
    assert second.cache_read_input_tokens is not None
    assert second.cache_read_input_tokens > 300
    assert prompt_tokens(first) == prompt_tokens(second)
