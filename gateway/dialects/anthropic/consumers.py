"""The consumers of Anthropic's API: they read, hand over, and write; the rest is pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gateway.dialects.anthropic.encode import MessageStream, failure, message
from gateway.dialects.anthropic.models import decode_page, render_list, render_model
from gateway.dialects.anthropic.parse import image_sources, to_request
from gateway.dialects.anthropic.wire import (
    DecodedMessages,
    MessagesBody,
    decode_count,
    decode_messages,
)
from gateway.dialects.unknown import UnknownFields
from gateway.http.request import ApiRequest
from gateway.serving.answers import AnswerConsumer
from gateway.serving.prompts import ModelsMixin, PromptConsumer
from inference.catalogue import ModelEntry
from inference.errors import TandemError
from inference.fold import fold
from inference.request import GenerationRequest

Decode = Callable[[dict[str, Any], UnknownFields], DecodedMessages]


class _MessagesPrompt(PromptConsumer):
    """What the two calls that send a prompt share: reading it into a canonical request."""

    async def read(self, decode: Decode) -> tuple[MessagesBody, ModelEntry, GenerationRequest]:
        """Check and translate the body, images fetched. Raises `TandemError` for what is wrong."""
        body = await self.decode(decode)
        entry = self.find_model(body.model)
        images = await self.images(entry, image_sources(body))
        context = self.context(entry)
        return body, entry, await self.aside(lambda: to_request(body, context, images))


class CountTokensConsumer(_MessagesPrompt):
    """`POST /v1/messages/count_tokens`: needs an engine's tokenizer, but none of its slots."""

    async def handle(self, request: ApiRequest) -> None:
        """Answer with the whole prompt's tokens, template, tools and images included."""
        _, entry, prompt = await self.read(decode_count)
        tokens = await self.services.dispatcher.count(prompt, max_waiting=entry.max_waiting)
        await self.respond_json(b'{"input_tokens":%d}' % tokens)


class MessagesConsumer(_MessagesPrompt, AnswerConsumer):
    """`POST /v1/messages`."""

    dialect = "anthropic"

    async def handle(self, request: ApiRequest) -> None:
        """Check everything, then queue the request and relay its answer."""
        body, entry, prompt = await self.read(decode_messages)
        message_id = f"msg_{request.id}"
        async with self.running(self.visit(entry, prompt, stream=bool(body.stream))) as run:
            if body.stream:
                encoder = MessageStream(message_id, entry.id, request.public_id)
                await self.relay(run, encoder)
            else:
                await self.respond_json(message(await fold(run), message_id, entry.id))

    def encode_failure(self, error: TandemError) -> bytes:
        """An error after the first byte is an event."""
        return failure(error, self.request.public_id)


class ModelsConsumer(ModelsMixin):
    """`GET /v1/models`, in one shape that Anthropic's and OpenAI's clients both read."""

    async def handle(self, request: ApiRequest) -> None:
        """List what the key may use; only Anthropic's clients page through it."""
        page = decode_page(request.query) if request.header(b"anthropic-version") else None
        entries = self.services.directory.catalogue.entries
        usable = [entry for entry in entries if self.principal.may_use(entry.id)]
        await self.respond_json(render_list(usable, page))


class ModelConsumer(ModelsMixin):
    """`GET /v1/models/{id}`."""

    async def handle(self, request: ApiRequest) -> None:
        """Show one entry of the catalogue."""
        await self.respond_json(render_model(self.find_model(self.arguments["model"])))
