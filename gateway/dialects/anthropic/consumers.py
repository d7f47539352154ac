"""The consumers of Anthropic's API: they read, hand over, and write; the rest is pure."""

from __future__ import annotations

import asyncio
import logging
import time

from gateway.dialects.anthropic.encode import PING, MessageStream, failure, message
from gateway.dialects.anthropic.models import decode_page, render_list, render_model
from gateway.dialects.anthropic.parse import ParseContext, to_request
from gateway.dialects.anthropic.wire import DecodedMessages, decode_messages, ignored_header
from gateway.errors import Header
from gateway.http.body import check_content_encoding, check_content_type, decode_object
from gateway.http.consumer import ApiConsumer
from gateway.http.request import ApiRequest
from gateway.http.slow_reader import SlowReader
from gateway.http.sse import COMMENT, STREAM_HEADERS, Quiet
from gateway.metrics import count_run
from inference.catalogue import ModelEntry
from inference.errors import ErrorCode, TandemError
from inference.events import Failed, Finished
from inference.fold import fold
from inference.transport.run import Run

logger = logging.getLogger(__name__)

_LARGE_BODY_BYTES = 256 * 1024


class AnthropicConsumer(ApiConsumer):
    """What the consumers of this dialect share."""

    def find_model(self, name: str) -> ModelEntry:
        """Return the catalogue's entry. Raises MODEL_NOT_FOUND."""
        entry = self.services.directory.catalogue.find(name)
        if entry is None:
            raise TandemError(ErrorCode.MODEL_NOT_FOUND, f"model '{name}' not found")
        return entry


class MessagesConsumer(AnthropicConsumer):
    """`POST /v1/messages`."""

    methods = ("POST",)

    async def handle(self, request: ApiRequest) -> None:
        """Check everything, then queue the request and relay its answer."""
        check_content_type(request.header(b"content-type"))
        check_content_encoding(request.header(b"content-encoding"))
        config = self.services.config
        body, ignored = await self._decode(request.body)
        entry = self.find_model(body.model)
        context = ParseContext(
            request_id=request.id,
            model=entry.id,
            deadline_s=time.time() + config.REQUEST_TIMEOUT_S,
            cache_salt=self.services.cache_salt(self.principal.team_id),
        )
        headers = [(b"tandem-ignored-fields", ignored_header(ignored))] if ignored else []
        run = await self.services.dispatcher.submit(
            to_request(body, context), max_waiting=entry.max_waiting
        )
        try:
            if body.stream:
                await self._stream(run, headers)
            else:
                answer = await fold(run)
                await self.respond_json(message(answer, self._message_id, entry.id), headers)
        finally:
            run.close()
            count_run("anthropic", run)

    async def _decode(self, raw: bytes) -> DecodedMessages:
        def decode() -> DecodedMessages:
            return decode_messages(decode_object(raw), self.services.config.UNKNOWN_FIELDS)

        # A huge body must not hold up every other stream while it is checked.
        return await asyncio.to_thread(decode) if len(raw) > _LARGE_BODY_BYTES else decode()

    @property
    def _message_id(self) -> str:
        return f"msg_{self.request.id}"

    async def _stream(self, run: Run, headers: list[Header]) -> None:
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
                    await self.start(200, [*STREAM_HEADERS, identity, *headers])
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
        """List the catalogue; only Anthropic's clients page through it."""
        page = decode_page(request.query) if request.header(b"anthropic-version") else None
        await self.respond_json(render_list(self.services.directory.catalogue.entries, page))


class ModelConsumer(AnthropicConsumer):
    """`GET /v1/models/{id}`."""

    async def handle(self, request: ApiRequest) -> None:
        """Show one entry of the catalogue."""
        await self.respond_json(render_model(self.find_model(self.arguments["model"])))
