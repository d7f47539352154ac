"""vLLM's own server as an upstream, by both of the dialects that it speaks.

The tests of a real engine that are imported here run once more, with such models.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from gateway.config import BASE_DIR
from inference.weights import DEFAULT_MODEL, fetch_default_weights
from tests.acceptance.client import Client
from tests.acceptance.stack import Gateway, Stack, insert_upstream
from tests.acceptance.test_real_engine import (  # noqa: F401
    async_sdk,
    test_a_stop_sequence_ends_the_answer_before_it,
    test_a_stream_and_a_whole_answer_are_the_same,
    test_an_answer_ends_at_max_tokens,
    test_blocks_and_strings_mean_the_same,
    test_earlier_turns_are_remembered,
    test_the_async_sdk_gets_a_stream,
    test_the_async_sdk_gets_a_whole_answer,
    test_the_sync_sdk_gets_a_stream,
    test_the_sync_sdk_gets_a_whole_answer,
)
from tests.acceptance.test_structured_output import (  # noqa: F401
    test_a_streamed_answer_matches_its_schema,
    test_an_answer_matches_its_schema,
    test_the_sdk_parses_an_answer_into_a_class,
)
from tests.acceptance.test_tools import CITIES, WEATHER
from tests.benchmarks.arms import VllmArguments, vllm
from tests.benchmarks.rounds import Arm

pytestmark = [pytest.mark.acceptance, pytest.mark.engine]

CONTEXT_TOKENS = 2048
QUESTION = "What is the capital of France?"
ANSWER = "The capital of France is Paris."
PATHS = {"openai": "/v1", "anthropic": ""}
OPTIONS: dict[str, dict[str, Any]] = {
    "openai": {
        "accepts": ["top_k", "min_p", "min_tokens", "repetition_penalty", "cache_salt"],
        "default_max_tokens": 64,
    },
    "anthropic": {"default_max_tokens": 64},
}
FLAGS = [
    *("--served-model-name", "there", "--dtype", "float32"),
    *("--max-model-len", str(CONTEXT_TOKENS), "--max-num-seqs", "8"),
    *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
]
ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}


@pytest.fixture(scope="module")
def server(stack: Stack) -> Iterator[Arm]:
    """Return vLLM's own server."""
    models_dir = Path(os.environ.get("TEST_MODELS_DIR", BASE_DIR / "var" / "models"))
    weights = fetch_default_weights(models_dir, print, bars=False)
    flags = ["--model", str(weights), *FLAGS]
    arguments = VllmArguments(model=DEFAULT_MODEL, flags=flags, environment=ENVIRONMENT)
    with vllm(stack, arguments) as running:
        yield running


@pytest.fixture(scope="module")
def models(stack: Stack, gateway: Gateway, server: Arm) -> dict[str, str]:
    """Return the names here of the model there, by the dialect that leads to it."""
    names = {}
    for dialect, path in PATHS.items():
        upstream = f"vllm-{dialect}"
        insert_upstream(
            stack.layout.database_url, upstream, base_url=f"http://127.0.0.1:{server.port}{path}"
        )
        names[dialect] = stack.add_model(
            f"through-vllm-{dialect}",
            backend=dialect,
            upstream_id=upstream,
            upstream_model="there",
            upstream_options=OPTIONS[dialect],
            context_tokens=CONTEXT_TOKENS,
        )
        stack.start_worker(names[dialect])
        gateway.wait_for_model(names[dialect])
    return names


@pytest.fixture(params=PATHS)
def model(models: dict[str, str], request: pytest.FixtureRequest) -> str:
    """Return the model behind each dialect in turn."""
    return models[request.param]


@pytest.fixture
def real_model(model: str) -> str:
    """Return it as the tests that are imported here call it."""
    return model


def asked(model: str, content: str, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": content}]
    return {"model": model, "messages": messages, "temperature": 0, "max_tokens": 32} | fields


def test_it_answers(chat: openai.OpenAI, model: str) -> None:
    said = chat.chat.completions.create(**asked(model, QUESTION))

    assert said.model == model
    assert said.choices[0].message.content == ANSWER
    assert said.choices[0].finish_reason == "stop"
    assert said.usage is not None
    assert said.usage.completion_tokens == 8
    assert said.usage.prompt_tokens > 8


def test_it_streams(chat: openai.OpenAI, model: str) -> None:
    with chat.chat.completions.stream(**asked(model, QUESTION)) as stream:
        pieces = [event.delta for event in stream if event.type == "content.delta"]

    assert len(pieces) > 3
    assert "".join(pieces) == ANSWER


def test_it_ends_where_it_must(chat: openai.OpenAI, model: str) -> None:
    cut = chat.chat.completions.create(**asked(model, QUESTION, max_tokens=3))
    stopped = chat.chat.completions.create(**asked(model, QUESTION, stop=[" is"]))

    assert cut.choices[0].finish_reason == "length"
    assert stopped.choices[0].message.content == "The capital of France"


def test_it_is_made_to_call(chat: openai.OpenAI, model: str) -> None:
    function = {"name": "get_weather", "parameters": WEATHER["input_schema"], "strict": True}
    forced = {"type": "function", "function": {"name": "get_weather"}}

    said = chat.chat.completions.create(
        **asked(
            model,
            "What is the weather in Rome?",
            max_tokens=100,
            tools=[{"type": "function", "function": function}],
            tool_choice=forced,
        )
    )

    (call,) = said.choices[0].message.tool_calls or []
    assert call.type == "function"
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments)["city"] in CITIES


def test_a_prompt_that_is_too_long_is_told_in_the_words_that_clients_look_for(
    chat: openai.OpenAI, model: str
) -> None:
    with pytest.raises(openai.BadRequestError, match="prompt is too long"):
        chat.chat.completions.create(**asked(model, "apple " * 3 * CONTEXT_TOKENS))


def test_messages_are_translated(client: Client, models: dict[str, str]) -> None:
    said = client.ask(
        models["openai"],
        QUESTION,
        max_tokens=32,
        temperature=0,
        top_k=1,
        stop_sequences=[" Paris"],
    ).json()

    assert said["content"] == [{"type": "text", "text": "The capital of France is"}]
    assert (said["stop_reason"], said["stop_sequence"]) == ("stop_sequence", " Paris")
