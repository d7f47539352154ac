"""The backends under contract: each is started once and shared by all of its tests."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest
import pytest_asyncio

from gateway.config import BASE_DIR
from inference.backends.port import Backend
from inference.backends.registry import build_backend
from inference.catalogue import ModelEntry
from inference.weights import DEFAULT_MODEL, fetch_default_weights
from tests.contracts.requests import make_entry
from tests.upstream_server import UpstreamServer

_QUESTION = "What is the weather in Rome?"
_STORY = "Write a long story about two friends who ride a tandem to the sea."
_SCRIPTED_STORY = 'script: {"tokens": 400, "token_delay_s": 0.001}'


@dataclass(frozen=True)
class Subject:
    """A started backend, its model, a prompt that it answers at length, and one for a tool.

    `counts`: it knows a prompt's tokens before it answers.
    """

    backend: Backend
    entry: ModelEntry
    story: str
    calling: str
    counts: bool = True


def _scripted_entry() -> ModelEntry:
    return make_entry(backend="scripted", context_tokens=2048, engine_options={})


def _vllm_entry() -> ModelEntry:
    return make_entry(
        backend="vllm",
        weights=DEFAULT_MODEL,
        context_tokens=2048,
        engine_options={"kv_cache_gib": 1},
        canary_prompt="What is the capital of France?",
        canary_expect="Paris",
        tool_parser="hermes",
        describe_tools=True,
    )


@asynccontextmanager
async def started(
    entry: ModelEntry,
    models_dir: Path = Path(),
    story: str = _STORY,
    calling: str = _QUESTION,
    *,
    counts: bool = True,
) -> AsyncIterator[Subject]:
    """Return a running backend, and stop it at the end."""
    backend = build_backend(entry, models_dir)
    await backend.start()
    try:
        yield Subject(backend, entry, story, calling, counts)
    finally:
        await backend.stop()


def _scripted_calls() -> str:
    calls = [{"name": "get_weather", "arguments": ['{"city": "Rome"', ', "unit": "C"}']}]
    return f"script: {json.dumps({'text': '', 'tool_calls': calls})}"


@asynccontextmanager
async def _remote(backend: str, path: str, *, counts: bool) -> AsyncIterator[Subject]:
    """Return a backend whose upstream is the scripted one behind that backend's dialect."""
    async with UpstreamServer(_scripted_entry()) as server:
        entry = make_entry(
            backend=backend, context_tokens=2048, upstream=server.upstream(path, retries=2)
        )
        async with started(
            entry, story=_SCRIPTED_STORY, calling=_scripted_calls(), counts=counts
        ) as subject:
            yield subject


@pytest.fixture(scope="session")
def models_dir() -> Path:
    """Return the folder with the default model, fetched if it is not there yet."""
    folder = Path(os.environ.get("TEST_MODELS_DIR", BASE_DIR / "var" / "models"))
    fetch_default_weights(folder, print, bars=False)
    return folder


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def scripted() -> AsyncIterator[Subject]:
    """Return the scripted backend; an endless script stands for a long answer."""
    async with started(
        _scripted_entry(), story=_SCRIPTED_STORY, calling=_scripted_calls()
    ) as subject:
        yield subject


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def openai() -> AsyncIterator[Subject]:
    """Return the backend for upstreams that speak OpenAI's API."""
    async with _remote("openai", "/v1", counts=False) as subject:
        yield subject


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def anthropic() -> AsyncIterator[Subject]:
    """Return the backend for upstreams that speak Anthropic's API."""
    async with _remote("anthropic", "", counts=True) as subject:
        yield subject


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def vllm(models_dir: Path) -> AsyncIterator[Subject]:
    """Return vLLM with the default model."""
    async with started(_vllm_entry(), models_dir) as subject:
        yield subject


_VLLM = pytest.param("vllm", marks=pytest.mark.engine)


@pytest.fixture(params=["scripted", "openai", "anthropic", _VLLM])
def subject(request: pytest.FixtureRequest) -> Subject:
    """Return each backend in turn."""
    return cast(Subject, request.getfixturevalue(request.param))


@pytest.fixture(params=["scripted", "anthropic", _VLLM])
def counting(request: pytest.FixtureRequest) -> Subject:
    """Return each backend that can count a prompt, and be told what to cache."""
    return cast(Subject, request.getfixturevalue(request.param))


@pytest.fixture(params=["scripted", "openai", _VLLM])
def scoring(request: pytest.FixtureRequest) -> Subject:
    """Return each backend that knows how likely tokens are."""
    return cast(Subject, request.getfixturevalue(request.param))
