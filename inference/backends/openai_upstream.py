"""Upstreams that speak OpenAI's API, by its own client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import openai

from inference.backends.openai_answer import ChatAnswer
from inference.backends.openai_wire import API, chat_fields
from inference.backends.port import Tally
from inference.backends.upstream_client import (
    KEYLESS,
    ClientErrors,
    connection_options,
    explained,
)
from inference.catalogue import ModelEntry
from inference.errors import ErrorCode, TandemError
from inference.request import GenerationRequest
from inference.upstreams import UpstreamEntry, UpstreamOptions

_ERRORS = ClientErrors(
    timeout=openai.APITimeoutError,
    connection=openai.APIConnectionError,
    status=openai.APIStatusError,
    other=openai.APIError,
)


class OpenAIProvider:
    """Sends chat completions."""

    def __init__(
        self, entry: ModelEntry, upstream: UpstreamEntry, options: UpstreamOptions, key: str
    ) -> None:
        self._entry = entry
        self._upstream = upstream
        self._options = options
        # When to try again is decided where all tries are counted.
        self._client = openai.AsyncOpenAI(
            api_key=key or KEYLESS,
            base_url=upstream.base_url,
            max_retries=0,
            http_client=openai.DefaultAsyncHttpxClient(
                **connection_options(upstream, entry.capacity)
            ),
        )
        # It takes these from the environment, which may mean another provider.
        self._client.organization = self._client.project = None
        self._client._custom_headers = {}

    def fields(self, request: GenerationRequest) -> dict[str, Any]:
        """Return the body of a chat completion."""
        return chat_fields(request, self._entry, self._options)

    def answer(self, request: GenerationRequest, tally: Tally) -> ChatAnswer:
        """Return a reader of chunks."""
        return ChatAnswer(request, tally)

    @asynccontextmanager
    async def stream(self, fields: dict[str, Any]) -> AsyncIterator[AsyncIterator[object]]:
        """Send a body, and return the answer's chunks as they were decoded."""
        with explained(_ERRORS, self._upstream):
            chunks = await self._client.post(
                "/chat/completions",
                content=msgspec.json.encode(fields),
                cast_to=object,
                stream=True,
                stream_cls=openai.AsyncStream[object],
            )
            async with chunks:
                yield chunks

    async def count(self, request: GenerationRequest) -> int:
        """Refuse: the API has no such call."""
        raise TandemError(
            ErrorCode.INVALID_REQUEST,
            f"a prompt for '{self._entry.id}' cannot be counted: it is served through {API}, which "
            "does not count, and a count belongs to the model's own tokenizer",
            param="model",
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()
