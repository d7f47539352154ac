"""The port that every backend implements: in-process vLLM, the scripted engine, upstreams."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

import msgspec

from inference.events import Event, Usage
from inference.pace_stats import PaceStats
from inference.request import GenerationRequest


class BackendStats(msgspec.Struct, frozen=True, kw_only=True):
    """A backend's own view of its load. `kv_use` is a share between 0 and 1, if it has a cache.

    `progress` grows whenever the engine makes any headway: work in flight while it stands still
    is a hang. Of all prompts' tokens that were looked for in the prefix cache (`prefix_queries`),
    `prefix_hits` were there. `pace` is that of work beside realtime, if the backend paces it.
    """

    running: int
    waiting: int
    kv_use: float | None
    progress: int
    prefix_queries: int = 0
    prefix_hits: int = 0
    pace: PaceStats | None = None


class Tally:
    """What one run has used so far: right at every moment, also when it is broken off.

    `output_tokens` counts what the engine has put out, whether or not it was said yet.
    """

    __slots__ = ("cache_written_tokens", "cached_tokens", "output_tokens", "prompt_tokens")

    def __init__(self) -> None:
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.cache_written_tokens = 0
        self.output_tokens = 0

    @property
    def usage(self) -> Usage:
        """The same as a finished run would report it."""
        return Usage(
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            cache_written_tokens=self.cache_written_tokens,
            output_tokens=self.output_tokens,
        )


class Backend(Protocol):
    """One engine for one model. `capacity` is how many requests it runs at the same time."""

    capacity: int

    async def start(self) -> None:
        """Load the model. Raises `TandemError` (ENGINE_FAILED) saying why it cannot serve."""

    def generate(
        self, request: GenerationRequest, tally: Tally | None = None
    ) -> AsyncGenerator[Event]:
        """Run one request. Closing the generator, or cancelling its task, aborts it at once.

        Who passes a `tally` knows at any time what the run has used.

        Yields `Started` when the prompt is tokenized, and ends with one `Finished` or `Failed`.
        With `max_tokens` 0, the prompt is put into the cache and nothing is answered.
        A fault of the request or of the engine is a `Failed` event; nothing is raised.
        """

    async def count(self, request: GenerationRequest) -> int:
        """Return the tokens of the request's prompt: what `Started` would say of it.

        Takes no slot. A prompt far beyond the context is estimated. Raises `TandemError`.
        """

    def stats(self) -> BackendStats:
        """The load right now; cheap enough to call twice a second."""

    def failure(self) -> str | None:
        """Why the engine can no longer serve and must be started anew, or None."""

    async def stop(self) -> None:
        """Free everything that `start` took. Harmless when called twice."""
