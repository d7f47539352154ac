"""pydantic-ai's agents against a live gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Literal

import anthropic
import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ModelHTTPError, NativeOutput, ToolOutput, ToolReturn
from pydantic_ai.messages import ThinkingPart
from pydantic_ai.models.anthropic import AnthropicModel, AnthropicModelSettings
from pydantic_ai.profiles.anthropic import AnthropicModelProfile
from pydantic_ai.providers.anthropic import AnthropicProvider

from tests.acceptance.client import script
from tests.acceptance.stack import Gateway, Stack, ending

pytestmark = [pytest.mark.acceptance, pytest.mark.every_route]

QUESTION = "Is Paris the capital of France?"


class City(BaseModel):
    """A city."""

    name: Literal["Paris", "Rome"]
    is_capital: bool


@pytest.fixture
async def provider(stack: Stack, gateway: Gateway) -> AsyncIterator[AnthropicProvider]:
    """Return a way to the shared gateway."""
    async with anthropic.AsyncAnthropic(
        base_url=gateway.url, api_key=stack.key, max_retries=0
    ) as client:
        yield AnthropicProvider(anthropic_client=client)


THINKING: AnthropicModelSettings = {
    "max_tokens": 2000,
    "anthropic_thinking": {"type": "enabled", "budget_tokens": 1024},
}


def use(
    name: str, provider: AnthropicProvider, settings: AnthropicModelSettings | None = None
) -> AnthropicModel:
    """Return a model; of one that it does not know it must be told what it can do."""
    return AnthropicModel(
        name,
        provider=provider,
        settings=settings or {"max_tokens": 200},
        profile=AnthropicModelProfile(supports_json_schema_output=True),
    )


async def test_it_gets_an_answer(provider: AnthropicProvider, model: str) -> None:
    result = await Agent(use(model, provider)).run(script(text="It is Paris."))
    assert result.output == "It is Paris."
    assert result.usage.output_tokens == 3


async def test_it_gets_a_stream(provider: AnthropicProvider, model: str) -> None:
    asked = script(text="It is Paris.")
    async with Agent(use(model, provider)).run_stream(asked) as result:
        pieces = [piece async for piece in result.stream_text(delta=True, debounce_by=None)]
    assert len(pieces) > 1
    assert "".join(pieces) == "It is Paris."


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_calls_result_goes_back_to_the_model(
    provider: AnthropicProvider, model: str, streamed: bool
) -> None:
    agent = Agent(use(model, provider))
    asked_of: list[str] = []

    @agent.tool_plain
    def get_weather(city: str) -> ToolReturn:
        asked_of.append(city)
        # What is said next stands beside the result.
        return ToolReturn("18 degrees", content=script(text="Mild."))

    call = {"name": "get_weather", "arguments": ['{"city":', ' "Rome"}']}
    asked = script(text="", tool_calls=[call])
    if streamed:
        async with agent.run_stream(asked) as result:
            output = await result.get_output()
    else:
        output = (await agent.run(asked)).output
    assert asked_of == ["Rome"]
    assert output == "Mild."


async def test_thinking_is_a_part(
    stack: Stack, gateway: Gateway, provider: AnthropicProvider
) -> None:
    name = stack.add_model("thinks-for-pydantic-ai", reasoning="optional")
    with ending(stack.start_worker(name)):
        gateway.wait_for_model(name)
        agent = Agent(use(name, provider, THINKING))
        first = await agent.run(script(thinking="Hm.", text="Yes."))
        thoughts = [part for part in first.response.parts if isinstance(part, ThinkingPart)]
        assert [thought.content for thought in thoughts] == ["Hm."]
        second = await agent.run(script(text="Sure."), message_history=first.all_messages())
    assert second.output == "Sure."


async def test_an_error_has_its_status(provider: AnthropicProvider) -> None:
    with pytest.raises(ModelHTTPError, match="model 'gpt-0' not found") as caught:
        await Agent(use("gpt-0", provider)).run("go")
    assert caught.value.status_code == 404


@pytest.mark.engine
@pytest.mark.parametrize("kind", [NativeOutput, ToolOutput])
async def test_an_answer_is_parsed_into_a_class(
    provider: AnthropicProvider, real_model: str, kind: Any
) -> None:
    model = use(real_model, provider, {"max_tokens": 200, "temperature": 0})
    result = await Agent(model, output_type=kind(City)).run(QUESTION)
    assert isinstance(result.output, City)
