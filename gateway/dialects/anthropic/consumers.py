"""The consumers of Anthropic's API: they read, hand over, and write; the rest is pure."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, Protocol

from gateway.accounting.desk import Visit
from gateway.dialects.anthropic.encode import MessageStream, failure, message
from gateway.dialects.anthropic.models import decode_page, render_list, render_model
from gateway.dialects.anthropic.parse import image_sources, to_request
from gateway.dialects.anthropic.raw import (
    COUNT_TOKENS,
    MESSAGES,
    RawBody,
    RawCountBody,
    RawStream,
    carried_headers,
    carried_path,
    check_members,
    decode_raw,
    raw_request,
)
from gateway.dialects.anthropic.wire import (
    DecodedMessages,
    MessagesBody,
    decode_count,
    decode_messages,
)
from gateway.dialects.unknown import UnknownFields
from gateway.http.request import ApiRequest
from gateway.serving.answers import AnswerConsumer
from gateway.serving.models import raw_entry, raw_parameters
from gateway.serving.prompts import ModelsMixin, PromptConsumer
from inference.catalogue import ModelEntry
from inference.errors import TandemError
from inference.fold import Answer, fold
from inference.request import GenerationRequest, RawRequest


class Decode(Protocol):
    """Checks a decoded body."""

    def __call__(
        self, obj: dict[str, Any], unknown: UnknownFields, *, connectors: bool
    ) -> DecodedMessages:
        """Return it. Raises INVALID_REQUEST."""


class _Read(NamedTuple):
    """A body, checked and translated."""

    body: MessagesBody | RawBody
    entry: ModelEntry
    prompt: GenerationRequest


class _MessagesPrompt(PromptConsumer):
    """What the two calls that send a prompt share: reading it into a canonical request.

    `path` is theirs in the API, and `raw_body` what is looked at of a body that travels as it is.
    """

    path: ClassVar[str]
    raw_body: ClassVar[type[RawBody]]

    async def read(self, decode: Decode, fallback: ModelEntry | None = None) -> _Read:
        """Check and translate the body, images fetched. Raises `TandemError` for what is wrong.

        With a `fallback`, as if it had named that one.
        """

        def check(
            obj: dict[str, Any], unknown: UnknownFields
        ) -> tuple[MessagesBody | RawBody, tuple[str, ...]]:
            named = obj if fallback is None else {"model": fallback.id}
            if raw := raw_entry(self.services.directory.catalogue, named):
                check_members(obj, self.request.body)
                return decode_raw(obj, raw_parameters(raw), self.raw_body), ()
            connectors = self.services.config.MCP_SERVERS_IN_REQUESTS
            return decode(obj, unknown, connectors=connectors)

        body = await self.decode(check)
        entry = fallback or self.find_model(body.model)
        context = self.context(entry)
        if isinstance(body, RawBody):
            return _Read(body, entry, raw_request(body, context, self._raw(body)))
        images = await self.images(entry, image_sources(body))
        prompt = await self.aside(lambda: to_request(body, context, images))
        return _Read(body, entry, prompt)

    def _raw(self, body: RawBody) -> RawRequest:
        request = self.request
        return RawRequest(
            path=carried_path(self.path, request.query),
            body=request.body,
            headers=carried_headers(request.scope["headers"]),
            stream=bool(body.stream),
        )

    async def pass_on(self, answer: Answer) -> bool:
        """Answer with what an upstream said; return False if it is not to be passed on."""
        if answer.raw is None:
            return False
        await self.respond_json(answer.raw.data)
        return True


class CountTokensConsumer(_MessagesPrompt):
    """`POST /v1/messages/count_tokens`: needs an engine's tokenizer, but none of its slots."""

    path = COUNT_TOKENS
    raw_body = RawCountBody

    async def handle(self, request: ApiRequest) -> None:
        """Answer with the whole prompt's tokens, template, tools and images included."""
        _, entry, prompt = await self.read(decode_count)
        answer = await self.services.dispatcher.count(prompt, max_waiting=entry.max_waiting)
        if not await self.pass_on(answer):
            tokens = answer.finished.usage.prompt_tokens
            await self.respond_json(b'{"input_tokens":%d}' % tokens)


class MessagesConsumer(_MessagesPrompt, AnswerConsumer):
    """`POST /v1/messages`."""

    dialect = "anthropic"
    path = MESSAGES
    raw_body = RawBody

    async def handle(self, request: ApiRequest) -> None:
        """Check everything, then queue the request and relay its answer."""
        message_id = f"msg_{request.id}"
        visit = await self._visit()

        async def read_for(fallback: ModelEntry) -> list[Visit]:
            return [await self._visit(fallback)]

        async with self.running(visit, read_for) as run:
            model = run.request.model
            if not visit.stream:
                answer = await fold(run)
                if not await self.pass_on(answer):
                    await self.respond_json(message(answer, message_id, model))
            elif run.request.raw is not None:
                await self.relay(run, RawStream(request.public_id))
            else:
                await self.relay(run, MessageStream(message_id, model, request.public_id))

    async def _visit(self, fallback: ModelEntry | None = None) -> Visit:
        body, entry, prompt = await self.read(decode_messages, fallback)
        return self.visit(entry, prompt, stream=bool(body.stream))

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
