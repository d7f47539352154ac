"""The consumers of Anthropic's API: they read, hand over, and write; the rest is pure."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar

from gateway.accounting.desk import Ticket, Visit
from gateway.dialects.anthropic.encode import PING, MessageStream, failure, message
from gateway.dialects.anthropic.models import decode_page, render_list, render_model
from gateway.dialects.anthropic.parse import ParseContext, image_sources, to_request
from gateway.dialects.anthropic.wire import (
    DecodedMessages,
    MessagesBody,
    UnknownFields,
    decode_count,
    decode_messages,
    ignored_header,
)
from gateway.http.body import check_content_encoding, check_content_type, decode_object
from gateway.http.consumer import ApiConsumer
from gateway.http.request import ApiRequest
from gateway.http.slow_reader import SlowReader
from gateway.http.sse import COMMENT, STREAM_HEADERS, Quiet
from gateway.metrics import count_refusal, count_run
from gateway.models import Scope
from inference.catalogue import ModelEntry
from inference.errors import ErrorCode, TandemError
from inference.events import Failed, Finished
from inference.fold import fold
from inference.request import GenerationRequest, Owner
from inference.transport.run import Run

logger = logging.getLogger(__name__)

Decode = Callable[[dict[str, Any], UnknownFields], DecodedMessages]
T = TypeVar("T")
_DIALECT = "anthropic"
_LARGE_BODY_BYTES = 256 * 1024


class AnthropicConsumer(ApiConsumer):
    """What the consumers of this dialect share."""

    def find_model(self, name: str) -> ModelEntry:
        """Return the catalogue's entry. Raises MODEL_NOT_FOUND or PERMISSION."""
        entry = self.services.directory.catalogue.find(name)
        if entry is None:
            raise TandemError(ErrorCode.MODEL_NOT_FOUND, f"model '{name}' not found")
        if not self.principal.may_use(entry.id):
            raise TandemError(
                ErrorCode.PERMISSION, f"this API key may not use the model '{entry.id}'"
            )
        return entry


class PromptConsumer(AnthropicConsumer):
    """What the two calls that send a prompt share: reading it into a canonical request."""

    methods = ("POST",)
    scope_needed = Scope.INFERENCE
    ignored: tuple[str, ...] = ()

    async def read(self, decode: Decode) -> tuple[MessagesBody, ModelEntry, GenerationRequest]:
        """Check and translate the body, images fetched. Raises `TandemError` for what is wrong."""
        check_content_type(self.request.header(b"content-type"))
        check_content_encoding(self.request.header(b"content-encoding"))
        body, self.ignored = await self._aside(
            lambda: decode(decode_object(self.request.body), self.services.config.UNKNOWN_FIELDS)
        )
        if self.ignored:
            self.extra_headers.append((b"tandem-ignored-fields", ignored_header(self.ignored)))
        entry = self.find_model(body.model)
        context = ParseContext(
            request_id=self.request.id,
            model=entry.id,
            owner=Owner(team_id=self.principal.team_id, key_id=self.principal.key_id),
            deadline_s=time.time() + self.services.config.REQUEST_TIMEOUT_S,
            cache_salt=self.services.cache_salt(self.principal.team_id),
            vision=entry.vision,
            images_without_vision=entry.images_without_vision,
            reasoning=entry.reasoning,
        )
        # A model that sees nothing gets a note instead, and nothing is fetched for it.
        sources = image_sources(body) if entry.vision else []
        images = await self.services.images.load(sources) if sources else []
        return body, entry, await self._aside(lambda: to_request(body, context, images))

    async def _aside(self, work: Callable[[], T]) -> T:
        """Work on the body: in a thread where it is so large that other streams would wait."""
        large = len(self.request.body) > _LARGE_BODY_BYTES
        return await asyncio.to_thread(work) if large else work()


class CountTokensConsumer(PromptConsumer):
    """`POST /v1/messages/count_tokens`: needs an engine's tokenizer, but none of its slots."""

    async def handle(self, request: ApiRequest) -> None:
        """Answer with the whole prompt's tokens, template, tools and images included."""
        _, entry, prompt = await self.read(decode_count)
        tokens = await self.services.dispatcher.count(prompt, max_waiting=entry.max_waiting)
        await self.respond_json(b'{"input_tokens":%d}' % tokens)


class MessagesConsumer(PromptConsumer):
    """`POST /v1/messages`."""

    async def handle(self, request: ApiRequest) -> None:
        """Check everything, then queue the request and relay its answer."""
        body, entry, prompt = await self.read(decode_messages)
        ticket = await self._admit(body, entry, prompt)
        try:
            run = await self.services.dispatcher.submit(prompt, max_waiting=entry.max_waiting)
        except TandemError as error:
            ticket.refuse(error)
            raise
        except asyncio.CancelledError:
            ticket.abandon()
            raise
        try:
            if body.stream:
                await self._stream(run)
            else:
                answer = message(await fold(run), self._message_id, entry.id)
                await self.respond_json(answer)
        finally:
            run.close()
            ticket.close(run)
            count_run(_DIALECT, run)

    async def _admit(
        self, body: MessagesBody, entry: ModelEntry, prompt: GenerationRequest
    ) -> Ticket:
        visit = Visit(
            asked=self.request,
            principal=self.principal,
            entry=entry,
            prompt=prompt,
            dialect=_DIALECT,
            stream=bool(body.stream),
            ignored=self.ignored,
        )
        try:
            ticket = await self.services.desk.admit(visit, self.services.directory.prices)
        except TandemError as error:
            count_refusal(_DIALECT, entry.id, error)
            raise
        self.extra_headers += ticket.headers
        return ticket

    @property
    def _message_id(self) -> str:
        return f"msg_{self.request.id}"

    async def _stream(self, run: Run) -> None:
        public_id = self.request.public_id
        encoder = MessageStream(self._message_id, run.request.model, public_id)
        reader = SlowReader(self.base_send, self.services.config.STREAM_BUFFER_BYTES)
        quiet = Quiet(self.services.config.PING_INTERVAL_S, run.wake)
        begun = False
        over = False
        try:
            while not over:
                events = await run.next()
                if not self.responding:
                    if events and isinstance(events[0], Failed):
                        # Nothing was sent: it still can be a plain HTTP error.
                        raise TandemError(events[0].code, events[0].message)
                    identity = (b"request-id", public_id.encode())
                    await self.start(200, [*STREAM_HEADERS, identity, *self.extra_headers])
                begun = begun or bool(events)
                # No ping before `message_start`: some clients take the first event for it.
                data = b"".join(map(encoder.feed, events)) or (PING if begun else COMMENT)
                over = bool(events) and isinstance(events[-1], Finished | Failed)
                if reader.is_behind(len(data)):
                    logger.warning("%s reads too slowly: its connection is dropped", public_id)
                    reader.drop()
                    return
                await self.write(data, more=not over)
                quiet.sent()
        finally:
            quiet.stop()

    def encode_failure(self, error: TandemError) -> bytes:
        """An error after the first byte is an event."""
        return failure(error, self.request.public_id)


class ModelsConsumer(AnthropicConsumer):
    """`GET /v1/models`, in one shape that Anthropic's and OpenAI's clients both read."""

    async def handle(self, request: ApiRequest) -> None:
        """List what the key may use; only Anthropic's clients page through it."""
        page = decode_page(request.query) if request.header(b"anthropic-version") else None
        entries = self.services.directory.catalogue.entries
        usable = [entry for entry in entries if self.principal.may_use(entry.id)]
        await self.respond_json(render_list(usable, page))


class ModelConsumer(AnthropicConsumer):
    """`GET /v1/models/{id}`."""

    async def handle(self, request: ApiRequest) -> None:
        """Show one entry of the catalogue."""
        await self.respond_json(render_model(self.find_model(self.arguments["model"])))
