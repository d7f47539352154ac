"""The official Anthropic SDK, and curl, against a real model in vLLM."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import pytest
from anthropic.types import Message

from tests.acceptance.client import Client
from tests.acceptance.stack import Gateway, Stack

pytestmark = [pytest.mark.acceptance, pytest.mark.engine]

CAPITAL = "What is the capital of France?"
GREEDY = {"temperature": 0}


@pytest.fixture
async def async_sdk(stack: Stack, gateway: Gateway) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(base_url=gateway.url, api_key=stack.key) as client:
        yield client


def ask(model: str, *turns: str, **fields: Any) -> dict[str, Any]:
    """Return the SDK's arguments for a greedy answer; the turns alternate, the user begins."""
    roles = ("user", "assistant")
    messages = [{"role": roles[number % 2], "content": turn} for number, turn in enumerate(turns)]
    return {
        "model": model,
        "max_tokens": 32,
        "messages": messages,
        "extra_body": GREEDY,
    } | fields


def text_of(message: Message) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def check_capital(message: Message) -> None:
    assert "Paris" in text_of(message)
    assert message.role == "assistant"
    assert message.stop_reason == "end_turn"
    assert message.usage.input_tokens + (message.usage.cache_read_input_tokens or 0) > 10
    assert 1 <= message.usage.output_tokens <= 32


def test_the_sync_sdk_gets_a_whole_answer(sdk: anthropic.Anthropic, real_model: str) -> None:
    check_capital(sdk.messages.create(**ask(real_model, CAPITAL)))


def test_the_sync_sdk_gets_a_stream(sdk: anthropic.Anthropic, real_model: str) -> None:
    with sdk.messages.stream(**ask(real_model, CAPITAL)) as stream:
        pieces = list(stream.text_stream)
        message = stream.get_final_message()
    check_capital(message)
    assert len(pieces) > 1
    assert "".join(pieces) == text_of(message)


async def test_the_async_sdk_gets_a_whole_answer(
    async_sdk: anthropic.AsyncAnthropic, real_model: str
) -> None:
    check_capital(await async_sdk.messages.create(**ask(real_model, CAPITAL)))


async def test_the_async_sdk_gets_a_stream(
    async_sdk: anthropic.AsyncAnthropic, real_model: str
) -> None:
    async with async_sdk.messages.stream(**ask(real_model, CAPITAL)) as stream:
        pieces = [piece async for piece in stream.text_stream]
        message = await stream.get_final_message()
    check_capital(message)
    assert "".join(pieces) == text_of(message)


def test_a_stream_and_a_whole_answer_are_the_same(
    sdk: anthropic.Anthropic, real_model: str
) -> None:
    whole = sdk.messages.create(**ask(real_model, CAPITAL))
    with sdk.messages.stream(**ask(real_model, CAPITAL)) as stream:
        streamed = stream.get_final_message()
    assert text_of(streamed) == text_of(whole)
    assert streamed.usage.output_tokens == whole.usage.output_tokens


def test_earlier_turns_are_remembered(sdk: anthropic.Anthropic, real_model: str) -> None:
    turns = ("My dog's name is Bolt.", "What a nice name for a dog!", "What is my dog's name?")
    assert "Bolt" in text_of(sdk.messages.create(**ask(real_model, *turns)))


def test_blocks_and_strings_mean_the_same(sdk: anthropic.Anthropic, real_model: str) -> None:
    system = "You are a geography teacher. Answer in one short sentence."
    strings = ask(real_model, CAPITAL, system=system)
    blocks = strings | {
        "system": [{"type": "text", "text": system}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": CAPITAL}]}],
    }
    one, other = (sdk.messages.create(**asked) for asked in (strings, blocks))
    assert text_of(one) == text_of(other)
    assert one.usage.output_tokens == other.usage.output_tokens
    bare = sdk.messages.create(**ask(real_model, CAPITAL))
    assert prompt_tokens(one) == prompt_tokens(other) != prompt_tokens(bare)


def prompt_tokens(message: Message) -> int:
    return message.usage.input_tokens + (message.usage.cache_read_input_tokens or 0)


def test_a_stop_sequence_ends_the_answer_before_it(
    sdk: anthropic.Anthropic, real_model: str
) -> None:
    message = sdk.messages.create(**ask(real_model, CAPITAL, stop_sequences=["Paris"]))
    assert message.stop_reason == "stop_sequence"
    assert message.stop_sequence == "Paris"
    assert "France" in text_of(message)
    assert "Paris" not in text_of(message)


def test_an_answer_ends_at_max_tokens(sdk: anthropic.Anthropic, real_model: str) -> None:
    message = sdk.messages.create(**ask(real_model, "Tell me a long story.", max_tokens=7))
    assert message.stop_reason == "max_tokens"
    assert message.usage.output_tokens == 7


def test_a_repeated_prompt_comes_from_the_cache(sdk: anthropic.Anthropic, real_model: str) -> None:
    asked = ask(real_model, " ".join(f"Fact {n} is {n * n}." for n in range(80)) + " Summarise.")
    first, second = (sdk.messages.create(**asked) for _ in range(2))
    assert not first.usage.cache_read_input_tokens
    assert second.usage.cache_read_input_tokens
    assert prompt_tokens(first) == prompt_tokens(second)
    with sdk.messages.stream(**asked) as stream:
        assert stream.get_final_message().usage.cache_read_input_tokens


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_tokens": 2048}, "exceed context limit"),
        ({"messages": [{"role": "user", "content": "word " * 4000}]}, "prompt is too long: "),
    ],
)
def test_what_the_context_cannot_hold_is_refused(
    sdk: anthropic.Anthropic, real_model: str, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(anthropic.BadRequestError, match=message):
        sdk.messages.create(**ask(real_model, CAPITAL, **fields))


def test_leaving_a_stream_stops_the_engine(stack: Stack, client: Client, real_model: str) -> None:
    with client.stream(real_model, "Tell me a long story.", max_tokens=1900) as stream:
        stream.wait_for("content_block_delta")
        stack.wait_for_in_flight(real_model, 1)
    stack.wait_for_in_flight(real_model, 0)
    # Long before the story can be over.
    assert client.ask(real_model, CAPITAL, max_tokens=5).status_code == 200


@pytest.mark.skipif(not shutil.which("curl"), reason="there is no curl here")
def test_curl_gets_an_answer(stack: Stack, gateway: Gateway, real_model: str) -> None:
    asked = ask(real_model, CAPITAL)
    asked |= asked.pop("extra_body")
    command = ["curl", "-sS", "--fail-with-body", f"{gateway.url}/v1/messages"]
    command += ["-H", f"x-api-key: {stack.key}", "-H", "content-type: application/json"]
    for streamed in (False, True):
        data = json.dumps(asked | {"stream": streamed})
        done = subprocess.run([*command, "-d", data], capture_output=True, check=True, text=True)
        assert "Paris" in done.stdout
