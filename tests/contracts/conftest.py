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

_QUESTION = "What is the weather in Rome?"
_STORY = "Write a long story about two friends who ride a tandem to the sea."


@dataclass(frozen=True)
class Subject:
    """A started backend, its model, a prompt that it answers at length, and one for a tool."""

    backend: Backend
    entry: ModelEntry
    story: str
    calling: str


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
    entry: ModelEntry, models_dir: Path, story: str = _STORY, calling: str = _QUESTION
) -> AsyncIterator[Subject]:
    """Return a running backend, and stop it at the end."""
    backend = build_backend(entry, models_dir)
    await backend.start()
    try:
        yield Subject(backend, entry, story, calling)
    finally:
        await backend.stop()


@pytest.fixture(scope="session")
def models_dir() -> Path:
    """Return the folder with the default model, fetched if it is not there yet."""
    folder = Path(os.environ.get("TEST_MODELS_DIR", BASE_DIR / "var" / "models"))
    fetch_default_weights(folder, print, bars=False)
    return folder


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def scripted() -> AsyncIterator[Subject]:
    """Return the scripted backend; an endless script stands for a long answer."""
    story = 'script: {"tokens": 400, "token_delay_s": 0.001}'
    calls = [{"name": "get_weather", "arguments": ['{"city": "Rome"', ', "unit": "C"}']}] * 2
    calling = f"script: {json.dumps({'text': '', 'tool_calls': calls[:1]})}"
    async with started(_scripted_entry(), Path(), story, calling) as subject:
        yield subject


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def vllm(models_dir: Path) -> AsyncIterator[Subject]:
    """Return vLLM with the default model."""
    async with started(_vllm_entry(), models_dir) as subject:
        yield subject


@pytest.fixture(params=["scripted", pytest.param("vllm", marks=pytest.mark.engine)])
def subject(request: pytest.FixtureRequest) -> Subject:
    """Return each backend in turn."""
    return cast(Subject, request.getfixturevalue(request.param))
