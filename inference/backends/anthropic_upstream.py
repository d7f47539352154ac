"""Upstreams that speak Anthropic's API, by its own client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import anthropic
import msgspec

from inference.backends.anthropic_answer import MessageAnswer
from inference.backends.anthropic_raw import RawCall, RawMessages
from inference.backends.anthropic_wire import count_fields, message_fields
from inference.backends.port import Tally
from inference.backends.upstream import UpstreamAnswer
from inference.backends.upstream_client import (
    KEYLESS,
    ClientErrors,
    connection_options,
    explained,
)
from inference.backends.upstream_faults import garbled
from inference.catalogue import ModelEntry
from inference.events import MAX_TOKENS
from inference.request import GenerationRequest
from inference.upstreams import UpstreamEntry, UpstreamOptions

_ERRORS = ClientErrors(
    timeout=anthropic.APITimeoutError,
    connection=anthropic.APIConnectionError,
    status=anthropic.APIStatusError,
    other=anthropic.APIError,
)


class _Counted(msgspec.Struct):
    input_tokens: Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)]


class AnthropicProvider:
    """Sends messages."""

    def __init__(
        self, entry: ModelEntry, upstream: UpstreamEntry, options: UpstreamOptions, key: str
    ) -> None:
        self._entry = entry
        self._upstream = upstream
        self._options = options
        # When to try again is decided where all tries are counted.
        self._client = anthropic.AsyncAnthropic(
            api_key=key or KEYLESS,
            base_url=upstream.base_url,
            max_retries=0,
            http_client=anthropic.DefaultAsyncHttpxClient(
                **connection_options(upstream, entry.capacity)
            ),
        )
        # It takes these from the environment, which may mean another provider.
        self._client._custom_headers = {}
        self._raw = RawMessages(entry, upstream, options, key)

    def fields(self, request: GenerationRequest) -> dict[str, Any] | RawCall:
        """Return the body of a message."""
        if request.raw is not None:
            return self._raw.call(request.raw)
        return message_fields(request, self._entry, self._options)

    def answer(self, request: GenerationRequest, tally: Tally) -> UpstreamAnswer:
        """Return a reader of events."""
        if request.raw is not None:
            return self._raw.answer(request.raw, tally)
        return MessageAnswer(request, tally)

    @asynccontextmanager
    async def stream(
        self, fields: dict[str, Any] | RawCall
    ) -> AsyncIterator[AsyncIterator[object]]:
        """Send a body, and return the answer's events as they were decoded."""
        if isinstance(fields, RawCall):
            async with self._raw.stream(fields) as pieces:
                yield pieces
            return
        with explained(_ERRORS, self._upstream):
            events = await self._client.post(
                "/v1/messages",
                content=msgspec.json.encode(fields),
                cast_to=object,
                stream=True,
                stream_cls=anthropic.AsyncStream[object],
            )
            async with events:
                yield events

    async def count(self, request: GenerationRequest) -> int:
        """Ask the upstream: only it has the model's tokenizer."""
        fields = count_fields(request, self._entry, self._options)
        with explained(_ERRORS, self._upstream):
            counted = await self._client.post(
                "/v1/messages/count_tokens", content=msgspec.json.encode(fields), cast_to=object
            )
        try:
            return msgspec.convert(counted, _Counted).input_tokens
        except msgspec.ValidationError as error:
            raise garbled(str(error)) from None

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()
        await self._raw.close()
