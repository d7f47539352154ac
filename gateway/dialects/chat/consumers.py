"""The consumer of OpenAI's Chat API: it reads, hands over, and writes; the rest is pure."""

from __future__ import annotations

import time
from typing import ClassVar

import uuid_utils

from gateway.dialects.chat.encode import ChunkStream, Shape, completion, failure
from gateway.dialects.chat.parse import another_choice, image_sources, to_request
from gateway.dialects.chat.wire import ChatBody, decode_chat
from gateway.errors import OPENAI, Envelope
from gateway.http.request import ApiRequest
from gateway.serving.answers import AnswerConsumer, rendered
from inference.catalogue import ModelEntry
from inference.errors import TandemError
from inference.request import GenerationRequest, Lane


class ChatConsumer(AnswerConsumer):
    """`POST /v1/chat/completions`."""

    dialect = "chat"
    envelope: ClassVar[Envelope] = OPENAI

    async def handle(self, request: ApiRequest) -> None:
        """Check everything, then queue the request and relay its answers."""
        body = await self.decode(decode_chat)
        entry = self.find_model(body.model)
        prompts = await self._prompts(body, entry)
        shape = Shape(
            completion_id=f"chatcmpl-{request.id}",
            model=entry.id,
            created_s=int(time.time()),
            tier="flex" if body.wants_flex else "default",
            choices=body.choices,
            usage=body.wants_usage,
            reasoning=body.shows_reasoning,
        )
        visits = [self.visit(entry, prompt, stream=bool(body.stream)) for prompt in prompts]
        async with self.choosing(visits) as choices:
            if body.stream:
                await self.relay(choices, ChunkStream(shape))
            else:
                answers = await choices.answers(body.choices)
                await self.respond_json(await rendered(answers, lambda: completion(answers, shape)))

    async def _prompts(self, body: ChatBody, entry: ModelEntry) -> list[GenerationRequest]:
        images = await self.images(entry, image_sources(body))
        context = self.context(entry, Lane.FLEX if body.wants_flex else Lane.REALTIME)
        first = await self.aside(lambda: to_request(body, context, images))
        others = [
            another_choice(first, number, str(uuid_utils.uuid7()))
            for number in range(1, body.choices)
        ]
        return [first, *others]

    def encode_failure(self, error: TandemError) -> bytes:
        """An error after the first byte is a chunk of its own."""
        return failure(error)
