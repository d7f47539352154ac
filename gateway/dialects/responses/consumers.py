"""The consumers of the Responses API that take a prompt: they read, hand over, and write."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import msgspec

from gateway.accounting.desk import Visit
from gateway.dialects.context import ParseContext
from gateway.dialects.responses.encode import ResponseEncoder, Shape, render, status_of
from gateway.dialects.responses.items import Item, created_at_s
from gateway.dialects.responses.parse import image_sources, put_in, references, to_request
from gateway.dialects.responses.wire import ResponsesBody, decode
from gateway.dialects.unknown import UnknownFields
from gateway.errors import OPENAI, Envelope
from gateway.http.request import ApiRequest
from gateway.responses.answering import BackgroundConsumer
from gateway.responses.clients import said_to
from gateway.responses.placement import Placement, place
from gateway.responses.store import Draft
from gateway.serving.answers import rendered
from gateway.serving.prompts import PromptConsumer
from inference.catalogue import ModelEntry
from inference.fold import Answer, fold
from inference.request import GenerationRequest, Lane
from inference.transport.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A request that was read: as it was sent, as it was understood, and what it goes on from."""

    obj: dict[str, Any]
    body: ResponsesBody
    placement: Placement | None
    entry: ModelEntry
    history: list[Item]
    prompt: GenerationRequest


class _ResponsesPrompt(PromptConsumer):
    """What the two calls that send a prompt share: reading it into a canonical request."""

    envelope: ClassVar[Envelope] = OPENAI

    async def read(self) -> _Asked:
        """Check and translate the body, images fetched. Raises `TandemError` for what is wrong."""
        obj, body = await self.decode(self._check_body)
        placement = place(obj)
        entry = self.find_model(body.model)
        history = await self._history(body)
        if wanted := references(body):
            # The response is kept with the items themselves.
            obj = put_in(obj, await self.services.responses.items(self.principal, wanted))
            checked, _ = await self.aside(lambda: self._check_body(obj))
            body = checked[1]
        context = self._context(body, entry, placement)
        prompt = await self.prompt(body, history, entry, context)
        return _Asked(
            obj=obj, body=body, placement=placement, entry=entry, history=history, prompt=prompt
        )

    async def prompt(
        self, body: ResponsesBody, history: list[Item], entry: ModelEntry, context: ParseContext
    ) -> GenerationRequest:
        """Translate a body for a model, images fetched. Raises `TandemError` for what is wrong."""
        sources = await self.aside(lambda: image_sources(body, history)) if entry.vision else []
        images = await self.images(entry, sources)
        return await self.aside(lambda: to_request(body, context, images, history))

    def _check_body(
        self, obj: dict[str, Any], unknown: UnknownFields = "ignore"
    ) -> tuple[tuple[dict[str, Any], ResponsesBody], tuple[str, ...]]:
        """Return the body as it was sent and as it was read, and its fields without effect."""
        connectors = self.services.config.MCP_SERVERS_IN_REQUESTS
        body, ignored = decode(obj, unknown, connectors=connectors)
        return (obj, body), ignored

    async def _history(self, body: ResponsesBody) -> list[Item]:
        if not body.previous_response_id:
            return []
        return await self.services.responses.history(self.principal, body.previous_response_id)

    def _context(
        self, body: ResponsesBody, entry: ModelEntry, placement: Placement | None
    ) -> ParseContext:
        if placement is not None:
            deadline_s = time.time() + placement.window_s
            return replace(self.context(entry, Lane.BACKGROUND), deadline_s=deadline_s)
        return self.context(entry, Lane.FLEX if body.service_tier == Lane.FLEX else Lane.REALTIME)


class InputTokensConsumer(_ResponsesPrompt):
    """`POST /v1/responses/input_tokens`: needs an engine's tokenizer, but none of its slots."""

    async def handle(self, request: ApiRequest) -> None:
        """Answer with the whole prompt's tokens: history, template, tools and images included."""
        asked = await self.read()
        answer = await self.services.dispatcher.count(
            asked.prompt, max_waiting=asked.entry.max_waiting
        )
        tokens = answer.finished.usage.prompt_tokens
        await self.respond_json(b'{"object":"response.input_tokens","input_tokens":%d}' % tokens)


class ResponsesConsumer(_ResponsesPrompt, BackgroundConsumer):
    """`POST /v1/responses`."""

    async def handle(self, request: ApiRequest) -> None:
        """Check everything, then answer: at once, or with a response that is to be made."""
        asked = await self.read()
        draft = Draft(
            visit=self.visit(asked.entry, asked.prompt, stream=bool(asked.body.stream)),
            body=asked.obj,
            history=asked.history,
            store=asked.body.wants_store,
        )
        if asked.placement is not None:
            await self.answer_in_background(draft, asked.placement)
        else:
            await self._answer_now(draft, asked)

    async def _answer_now(self, draft: Draft, asked: _Asked) -> None:
        async def read_for(entry: ModelEntry) -> list[Visit]:
            context = self._context(asked.body, entry, None)
            prompt = await self.prompt(asked.body, asked.history, entry, context)
            return [self.visit(entry, prompt, stream=draft.visit.stream)]

        async with self.running(draft.visit, read_for) as run:
            visit = draft.visit._replace(prompt=run.request)
            await self._answer_by(run, draft._replace(visit=visit))

    async def _answer_by(self, run: Run, draft: Draft) -> None:
        shape = self._shape(draft)
        async with self.services.responses.keep(draft, run) as source:
            if draft.visit.stream:
                self.encoder = ResponseEncoder(shape, clock=lambda: source.ended_at_s)
                await self.relay(source, self.encoder)
            else:
                answer = await fold(source)
                shape = replace(shape, completed_at_s=source.ended_at_s)
                await self.respond_json(
                    await rendered([answer], lambda: self._render(shape, answer))
                )

    def _render(self, shape: Shape, answer: Answer) -> bytes:
        response = render(shape, status_of(answer.finished), answer=answer)
        return msgspec.json.encode(said_to(self.request, response))

    def _shape(self, draft: Draft) -> Shape:
        prompt = draft.visit.prompt
        store = draft.store and self.services.responses.keeps(self.principal)
        return Shape(
            id=prompt.id,
            created_at_s=created_at_s(prompt.id),
            model=prompt.model,
            body={**draft.body, "store": store},
            service_tier="flex" if prompt.lane is Lane.FLEX else "default",
        )
