"""Work beside realtime in a real engine: it waits, makes room, and says the same as alone.

The targets are out of reach, so that work is held for as long as realtime runs, whatever the
machine; the cache has room for one request of full length, or for all the rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from inference.events import Event, TextDelta
from inference.pace_stats import PaceStats
from inference.request import GenerationRequest, Lane
from inference.weights import DEFAULT_MODEL
from tests.contracts.conftest import Subject, started
from tests.contracts.requests import collect, make_entry, make_request, text_of

pytestmark = [
    pytest.mark.engine,
    pytest.mark.asyncio(loop_scope="session"),
    # vLLM leaves it to the collector to close its sockets.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

_BLOCK_TOKENS = 32
_CONTEXT_TOKENS = 512
# Keys and values of one token in the default model: 30 layers, 3 heads of 64 numbers.
_TOKEN_BYTES = 30 * 2 * 3 * 64 * 4
_ROWS = range(1, 4)
# It needs most of the cache.
_LONG = "The sea is wide and the road is long. " * 38


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def small(models_dir: Path) -> AsyncIterator[Subject]:
    """Return vLLM with a cache of a few hundred tokens."""
    # vLLM keeps a block for itself.
    cache_bytes = (_CONTEXT_TOKENS + _BLOCK_TOKENS) * _TOKEN_BYTES
    entry = make_entry(
        backend="vllm",
        weights=DEFAULT_MODEL,
        context_tokens=_CONTEXT_TOKENS,
        capacity=8,
        ttft_target_ms=1,
        itl_target_ms=1,
        engine_options={"kv_cache_gib": cache_bytes / 2**30, "block_size": _BLOCK_TOKENS},
    )
    async with started(entry, models_dir) as subject:
        yield subject


def row(number: int) -> GenerationRequest:
    """Return a piece of work whose answer is long and leaves the model no doubt."""
    first = 100 * number
    text = f"Write the numbers from {first} to {first + 40}, separated by commas."
    return msgspec.structs.replace(make_request(text, max_tokens=80), lane=Lane.BATCH)


def pace(subject: Subject) -> PaceStats:
    found = subject.backend.stats().pace
    assert found is not None
    return found


class Run:
    """A request that runs."""

    def __init__(self, subject: Subject, request: GenerationRequest) -> None:
        self.has_begun = asyncio.Event()
        self.events: list[Event] = []
        self.task = asyncio.create_task(self._run(subject, request))

    async def _run(self, subject: Subject, request: GenerationRequest) -> None:
        async with aclosing(subject.backend.generate(request)) as events:
            async for event in events:
                self.events.append(event)
                if isinstance(event, TextDelta):
                    self.has_begun.set()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def said_alone(small: Subject) -> list[str]:
    """Return what the rows come to one after another."""
    return [text_of(await collect(small.backend, row(number))) for number in _ROWS]


async def under_way(subject: Subject) -> list[Run]:
    """Return the rows once each has put out something."""
    rows = [Run(subject, row(number)) for number in _ROWS]
    await asyncio.gather(*(each.has_begun.wait() for each in rows))
    return rows


async def texts(rows: list[Run]) -> list[str]:
    """Return what the rows came to, at their end."""
    await asyncio.gather(*(each.task for each in rows))
    return [text_of(each.events) for each in rows]


async def test_it_says_what_its_pace_has_come_to(small: Subject) -> None:
    await collect(small.backend, make_request("Hello", max_tokens=8))
    stats = pace(small)
    assert (stats.itl_target_s, stats.ttft_target_s) == (0.001, 0.001)
    assert stats.idle_itl_s > 0
    assert stats.idle_ttft_s > 0


async def test_rows_that_are_held_for_realtime_say_the_same(
    small: Subject, said_alone: list[str]
) -> None:
    before = pace(small)
    rows = await under_way(small)
    await collect(small.backend, make_request("Tell me of the sea.", max_tokens=20))
    assert not any(each.task.done() for each in rows)

    assert await texts(rows) == said_alone
    after = pace(small)
    held = after.held_row_steps - before.held_row_steps
    assert held > 0
    assert after.row_steps - before.row_steps > held
    assert after.evictions == before.evictions


@pytest.mark.parametrize("is_known", [False, True])
async def test_rows_make_room_for_a_prompt_that_finds_none(
    small: Subject, said_alone: list[str], *, is_known: bool
) -> None:
    # A prompt whose beginning is still in the cache needs as much room.
    request = make_request(_LONG, cache_salt=f"known: {is_known}", max_tokens=4)
    if is_known:
        await collect(small.backend, request)
    before = pace(small)
    rows = await under_way(small)
    asked = Run(small, request)
    await asked.has_begun.wait()
    assert not any(each.task.done() for each in rows)
    await asked.task

    assert await texts(rows) == said_alone
    after = pace(small)
    assert after.evictions > before.evictions
    assert after.recomputed_tokens > before.recomputed_tokens
