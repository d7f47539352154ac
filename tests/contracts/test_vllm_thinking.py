"""Thinking, read by vLLM's own reasoning parser. The default model is made to think aloud."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from inference.events import FinishReason
from inference.fold import fold
from inference.request import (
    Message,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolChoice,
    ToolMode,
)
from inference.weights import DEFAULT_MODEL
from tests.contracts.conftest import Subject, started
from tests.contracts.requests import make_entry, say
from tests.contracts.test_capabilities import WEATHER, asked
from tests.contracts.tiny_models import make_thinking_model

pytestmark = [
    pytest.mark.engine,
    pytest.mark.asyncio(loop_scope="session"),
    # vLLM leaves it to the collector to close its sockets.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

QUESTION = "What is the capital of France?"
# The template's own words count too.
BUDGET = 8


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def thinker(
    models_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Subject]:
    """Return vLLM with a model that thinks unless it is asked not to."""
    folder = tmp_path_factory.mktemp("models")
    make_thinking_model(models_dir / DEFAULT_MODEL, folder / "thinker")
    entry = make_entry(
        backend="vllm",
        weights="thinker",
        reasoning="default_on",
        reasoning_parser="deepseek_r1",
        tool_parser="hermes",
        describe_tools=True,
        engine_options={"kv_cache_gib": 1},
    )
    async with started(entry, folder) as subject:
        yield subject


async def test_it_thinks_within_its_budget_and_then_answers_in_the_format(
    thinker: Subject,
) -> None:
    schema = {"enum": ["Paris", "Rome"]}
    answer = await fold(
        thinker.backend.generate(
            asked(QUESTION, thinking=True, thinking_budget_tokens=BUDGET, output_schema=schema)
        )
    )

    thinking, text = answer.parts
    assert isinstance(thinking, ThinkingPart)
    assert isinstance(text, TextPart)
    assert "think>" not in thinking.text
    assert json.loads(text.text) in schema["enum"]
    usage = answer.finished.usage
    assert 0 < usage.thinking_tokens <= BUDGET
    assert usage.thinking_tokens < usage.output_tokens


async def test_thinking_that_is_cut_is_no_text(thinker: Subject) -> None:
    answer = await fold(thinker.backend.generate(asked(QUESTION, max_tokens=5)))

    (thinking,) = answer.parts
    assert isinstance(thinking, ThinkingPart)
    assert answer.finished.reason is FinishReason.LENGTH
    assert answer.finished.usage.thinking_tokens == 5


async def test_it_does_not_think_when_asked_not_to(thinker: Subject) -> None:
    answer = await fold(thinker.backend.generate(asked(QUESTION, max_tokens=12, thinking=False)))

    (text,) = answer.parts
    assert isinstance(text, TextPart)
    assert answer.finished.usage.thinking_tokens == 0


async def test_it_thinks_before_a_call_that_it_must_make(thinker: Subject) -> None:
    answer = await fold(
        thinker.backend.generate(
            asked(
                QUESTION,
                thinking=True,
                thinking_budget_tokens=BUDGET,
                tools=(WEATHER,),
                tool_choice=ToolChoice(mode=ToolMode.ANY, parallel=False),
            )
        )
    )

    thinking, call = answer.parts
    assert isinstance(thinking, ThinkingPart)
    assert isinstance(call, ToolCallPart)
    assert json.loads(call.arguments).keys() == {"city", "unit"}
    assert answer.finished.reason is FinishReason.TOOL_USE


async def test_what_was_thought_is_given_back_to_the_template(thinker: Subject) -> None:
    def conversation(*parts: TextPart | ThinkingPart) -> list[Message]:
        answered = Message(role=Role.ASSISTANT, parts=parts)
        return [say(Role.USER, QUESTION), answered, say(Role.USER, "Sure?")]

    thought = ThinkingPart("France has one capital, which is Paris.")
    without = await thinker.backend.count(asked(*conversation(TextPart("Paris."))))
    with_it = await thinker.backend.count(asked(*conversation(thought, TextPart("Paris."))))

    assert with_it - without > 8
