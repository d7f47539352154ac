"""A model that others run: its requests go to an upstream, as the catalogue says.

What the upstreams' dialects differ in is behind `Provider`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any, Protocol

from inference.backends.port import BackendStats, Tally
from inference.backends.upstream_health import (
    CircuitBreaker,
    CircuitOpenError,
    RateLimiter,
    UpstreamError,
    is_patient,
    pause_s,
)
from inference.backends.upstream_secrets import redacted, redactor_of, told
from inference.backends.whole_text import TextMender
from inference.catalogue import ModelEntry
from inference.errors import ErrorCode, TandemError
from inference.events import Event, Failed
from inference.redaction import Redactor
from inference.request import GenerationRequest
from inference.secret_references import Secrets
from inference.upstreams import (
    UpstreamEntry,
    UpstreamOptions,
    key_of,
    read_options,
    read_secrets,
    url_fault,
)

logger = logging.getLogger(__name__)

# What an upstream may take to end a stream in which it has said all.
_LAST_WORDS_S = 5.0
_OVER = object()
# From about this size on, editing a body takes milliseconds.
_LARGE_BODY_BYTES = 256 * 1024
_REQUEST_FAULTS = (ErrorCode.INVALID_REQUEST, ErrorCode.PROMPT_TOO_LONG, ErrorCode.TOO_LARGE)


class UpstreamAnswer(Protocol):
    """Reads one answer. `begun`: something was put out."""

    begun: bool

    @property
    def full(self) -> bool:
        """Whether no more of it is wanted."""

    @property
    def whole(self) -> bool:
        """Whether it has all been said: what goes wrong behind its end concerns nobody."""

    def sent(self) -> None:
        """Count the prompt, which is on its way, until the upstream says how long it is."""

    def read(self, data: object) -> Iterator[Event]:
        """Yield the events of one piece of the stream, decoded. Raises `UpstreamError`."""

    def end(self) -> Iterator[Event]:
        """Yield the last events, once the stream has ended. Raises `UpstreamError`."""


class Provider(Protocol):
    """One dialect's client of one upstream. Whatever goes wrong there is an `UpstreamError`."""

    def fields(self, request: GenerationRequest) -> Any:
        """Return what to send. Raises `TandemError` naming what cannot be carried."""

    def answer(self, request: GenerationRequest, tally: Tally) -> UpstreamAnswer:
        """Return a reader of the answer."""

    def stream(self, fields: Any) -> AbstractAsyncContextManager[AsyncIterator[object]]:
        """Send that, and return the decoded pieces of the answer's stream."""

    async def count(self, request: GenerationRequest) -> int:
        """Return the prompt's tokens. Raises `TandemError` where the dialect cannot tell."""

    async def close(self) -> None:
        """Close the connections."""


MakeProvider = Callable[[ModelEntry, UpstreamEntry, UpstreamOptions, str], Provider]
"""Makes a provider of the model, its upstream, its options and the key, which may be empty."""


class UpstreamBackend:
    """Runs a model's requests at its upstream. Only how it fails is known here, not what it is."""

    def __init__(self, entry: ModelEntry, make_provider: MakeProvider) -> None:
        self.capacity = entry.capacity
        self._entry = entry
        self._make_provider = make_provider
        self._provider: Provider | None = None
        self._secrets = Secrets({})
        self._breaker = CircuitBreaker()
        self._limiter = RateLimiter(None)
        self._retries = 0
        self._running = 0
        self._events = 0
        self._looks = itertools.count()

    async def start(self) -> None:
        """Read the key. Raises `TandemError` (ENGINE_FAILED) saying what is wrong with the entry.

        The upstream is not asked: what it cannot do now it may be able to do later. A canary asks.
        """
        upstream = self._entry.upstream
        if upstream is None:
            raise self._cannot_start("it has no upstream")
        if fault := url_fault(upstream.base_url):
            raise self._cannot_start(f"the address of {upstream.name} {fault}")
        try:
            options = read_options(self._entry.upstream_options)
            self._secrets = read_secrets(upstream.key)
        except ValueError as error:
            raise self._cannot_start(f"upstream_options: {error}") from None
        except TandemError as error:
            raise self._cannot_start(error.message) from None
        self._limiter = RateLimiter(upstream.requests_per_minute)
        self._retries = upstream.retries
        key = key_of(self._secrets)
        self._provider = self._make_provider(self._entry, upstream, options, key)

    async def generate(
        self, request: GenerationRequest, tally: Tally | None = None
    ) -> AsyncGenerator[Event]:
        """Run one request, as the port says."""
        redactor = redactor_of(request, self._secrets)
        mender = TextMender()
        self._running += 1
        try:
            async with aclosing(self._run(request, tally or Tally(), redactor)) as events:
                async for event in events:
                    self._events += 1
                    if (whole := mender.feed(event)) is not None:
                        yield redacted(whole, redactor)
        except TandemError as error:
            said = error.answer if isinstance(error, UpstreamError) else None
            yield redacted(Failed(code=error.code, message=error.message, answer=said), redactor)
        finally:
            self._running -= 1

    async def try_once(self, request: GenerationRequest) -> None:
        """Wait until one request begins to be answered, for the operator.

        Raises `TandemError`, with what the upstream says of the account as well.
        """
        provider = self._ready()
        answer = provider.answer(request, Tally())
        try:
            fields = await _fields(provider, request)
            async with aclosing(self._ask(provider, request, fields, answer)) as events:
                async for _ in events:
                    if answer.begun:
                        return
        except UpstreamError as error:
            message = f"{error.message}: {error.kept_back}" if error.kept_back else error.message
            redactor = redactor_of(request, self._secrets)
            raise TandemError(error.code, told(message, redactor)) from None

    async def count(self, request: GenerationRequest) -> int:
        """Count the prompt's tokens, as the port says, if the upstream can."""
        try:
            with self._breaker.passing_by():
                return await self._ready().count(request)
        except TandemError as error:
            message = told(error.message, redactor_of(request, self._secrets))
            raise TandemError(error.code, message, param=error.param) from None

    def stats(self) -> BackendStats:
        """Requests that run there. Progress is always made: a silent upstream times out instead,
        and starting this engine anew would not help it."""
        progress = self._events + next(self._looks)
        return BackendStats(running=self._running, waiting=0, kv_use=None, progress=progress)

    def failure(self) -> str | None:
        """None: whatever ails an upstream may pass."""
        return None

    async def stop(self) -> None:
        """Close the connections."""
        provider, self._provider = self._provider, None
        if provider is not None:
            await provider.close()

    def _cannot_start(self, why: str) -> TandemError:
        return TandemError(ErrorCode.ENGINE_FAILED, f"{self._entry.id} cannot be served: {why}")

    def _ready(self) -> Provider:
        if self._provider is None:
            raise TandemError(ErrorCode.ENGINE_FAILED, "the engine is not running")
        return self._provider

    def _log(self, error: UpstreamError, redactor: Redactor) -> None:
        """Tell the operator what is no fault of the request's; that may quote the prompt."""
        if error.code not in _REQUEST_FAULTS and not isinstance(error, CircuitOpenError):
            logger.warning("%s: %s", self._entry.id, told(error.message, redactor))

    async def _run(
        self, request: GenerationRequest, tally: Tally, redactor: Redactor
    ) -> AsyncGenerator[Event]:
        """Try until an answer has begun, then never again. Raises `TandemError`."""
        provider = self._ready()
        fields = await _fields(provider, request)
        patient = is_patient(request.lane)
        for tries in itertools.count(1):
            answer = provider.answer(request, tally)
            try:
                async with aclosing(self._ask(provider, request, fields, answer)) as events:
                    async for event in events:
                        yield event
                return
            except UpstreamError as error:
                self._log(error, redactor)
                if not answer.begun:
                    # What was refused is not the caller's to pay, should it leave in the pause.
                    tally.prompt_tokens = 0
                wait_s = pause_s(error, tries=tries, retries=self._retries, patient=patient)
                if answer.begun or wait_s is None or time.time() + wait_s > request.deadline_s:
                    raise
            await asyncio.sleep(wait_s)

    async def _ask(
        self, provider: Provider, request: GenerationRequest, fields: Any, answer: UpstreamAnswer
    ) -> AsyncGenerator[Event]:
        """Try once. Raises `UpstreamError`.

        What only counts is free, and anybody may ask for it without end: it takes nothing of what
        the others may send, and has the upstream left alone for nobody.
        """
        counts = request.raw is not None and request.raw.counts
        with self._breaker.passing_by() if counts else self._breaker.passing() as passage:
            if not counts:
                await self._limiter.take(patient=is_patient(request.lane))
            answer.sent()
            try:
                async with provider.stream(fields) as pieces:
                    while (piece := await _next(pieces, answer)) is not _OVER:
                        passage.answered()
                        for event in answer.read(piece):
                            yield event
                        if answer.full:
                            break
            except UpstreamError:
                if not answer.whole:
                    raise
            for event in answer.end():
                yield event


async def _fields(provider: Provider, request: GenerationRequest) -> Any:
    """Return what to send: made in a thread where all other answers would wait for it."""
    is_large = request.raw is not None and len(request.raw.body) > _LARGE_BODY_BYTES
    if is_large:
        return await asyncio.to_thread(provider.fields, request)
    return provider.fields(request)


async def _next(pieces: AsyncIterator[object], answer: UpstreamAnswer) -> object:
    """Return the next piece. A stream that goes on and says nothing is over once all is said."""
    try:
        async with asyncio.timeout(_LAST_WORDS_S if answer.whole else None):
            return await anext(pieces, _OVER)
    except TimeoutError:
        return _OVER
