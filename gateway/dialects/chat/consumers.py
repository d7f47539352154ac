"""The consumer of OpenAI's Chat API: it reads, hands over, and writes; the rest is pure."""

from __future__ import annotations

import time
from typing import ClassVar

import uuid_utils

from gateway.accounting.desk import Visit
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

        async def read_for(entry: ModelEntry) -> list[Visit]:
            prompts = await self._prompts(body, entry)
            return [self.visit(entry, prompt, stream=bool(body.stream)) for prompt in prompts]

        visits = await read_for(self.find_model(body.model))
        async with self.choosing(visits, read_for) as choices:
            shape = Shape(
                completion_id=f"chatcmpl-{request.id}",
                model=choices.model,
                created_s=int(time.time()),
                tier="flex" if body.wants_flex else "default",
                choices=body.choices,
                shares_prompt=choices.shares_prompt,
                usage=body.wants_usage,
                reasoning=body.shows_reasoning,
            )
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
