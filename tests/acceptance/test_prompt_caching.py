"""Prompt caching as a caller of the official SDK sees it, on a real engine."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from anthropic.types import Usage

from tests.acceptance.client import body
from tests.acceptance.stack import Gateway, Stack
from tests.acceptance.teams import make_member

pytestmark = [pytest.mark.acceptance, pytest.mark.engine, pytest.mark.every_route]

_numbers = itertools.count()


@pytest.fixture
def stranger(stack: Stack, gateway: Gateway) -> Iterator[anthropic.Anthropic]:
    """Return a client of another team."""
    key = make_member(stack).key
    with anthropic.Anthropic(base_url=gateway.url, api_key=key) as client:
        yield client


@pytest.fixture
def handbook() -> list[dict[str, Any]]:
    """Return a long system prompt that no other test has, marked to be cached."""
    rules = " ".join(f"Rule {number}: never say {number * 7}." for number in range(120))
    text = f"Handbook {next(_numbers)}. {rules}"
    return [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]


def ask(
    client: anthropic.Anthropic, model: str, system: list[dict[str, Any]], question: str
) -> Usage:
    """Ask for one token, and hold the usage to what was counted before."""
    asked = body(model, question, system=system) | {"max_tokens": 1}
    counted = client.messages.count_tokens(
        **{name: value for name, value in asked.items() if name != "max_tokens"}
    )
    usage: Usage = client.messages.create(**asked).usage
    assert read(usage) + written(usage) + usage.input_tokens == counted.input_tokens
    return usage


def read(usage: Usage) -> int:
    assert usage.cache_read_input_tokens is not None
    return usage.cache_read_input_tokens


def written(usage: Usage) -> int:
    assert usage.cache_creation_input_tokens is not None
    return usage.cache_creation_input_tokens


def prompt(usage: Usage) -> int:
    return read(usage) + written(usage) + usage.input_tokens


def test_most_of_a_repeated_long_prompt_is_read_from_the_cache(
    sdk: anthropic.Anthropic, real_model: str, handbook: list[dict[str, Any]]
) -> None:
    first = ask(sdk, real_model, handbook, "Which rule is the first?")
    again = ask(sdk, real_model, handbook, "And how many rules are there in all?")

    assert read(first) == 0
    assert written(first) > 0.8 * prompt(first)
    assert read(again) > 0.8 * prompt(again)
    # The cache is kept in blocks: what lies in the last one before the mark is written again.
    assert read(again) + written(again) >= written(first)


def test_another_team_finds_nothing_of_it(
    sdk: anthropic.Anthropic,
    stranger: anthropic.Anthropic,
    real_model: str,
    handbook: list[dict[str, Any]],
) -> None:
    question = "Which rule is the first?"
    ask(sdk, real_model, handbook, question)

    assert read(ask(stranger, real_model, handbook, question)) == 0
    assert read(ask(stranger, real_model, handbook, question)) > 0
    assert read(ask(sdk, real_model, handbook, question)) > 0


def test_a_prewarmed_prompt_is_in_the_cache_when_it_is_asked(
    sdk: anthropic.Anthropic, real_model: str, handbook: list[dict[str, Any]]
) -> None:
    question = "Which rule is the first?"
    warmed = sdk.messages.create(
        **body(real_model, question, system=handbook) | {"max_tokens": 0}
    ).usage

    asked = ask(sdk, real_model, handbook, question)

    assert warmed.output_tokens == 0
    assert read(asked) > 0.8 * prompt(asked)
