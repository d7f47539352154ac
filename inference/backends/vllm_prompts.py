"""From requests to prompts that the engine takes: templates, tokens and checks.

vLLM does it, as its own API server does. Imported only by a backend that is starting.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec
import xgrammar
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.exceptions import VLLMClientError
from vllm.sampling_params import SamplingParams

from inference.backends.limits import allowed_tokens
from inference.backends.marks import common_length, marked_prefix
from inference.backends.schemas import Schema, check_enforceable
from inference.backends.vllm_answers import (
    Answer,
    NoAnswer,
    ParsedAnswer,
    PlainAnswer,
    ScoredAnswer,
)
from inference.backends.vllm_chat import chat_fields, enforced_schemas, may_call, system_first
from inference.catalogue import ModelEntry
from inference.errors import ErrorCode, TandemError
from inference.events import Likely, TokenLogprob
from inference.request import (
    GenerationRequest,
    ImagePart,
    Message,
    Part,
    Role,
    Sampling,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)

# How much of a hopelessly long prompt is tokenized to tell how long it is.
_SAMPLE_CHARS = 100_000

# What the compiler of grammars puts before its messages: the time and a line of its source.
_COMPILER_PREFIX = re.compile(r"^\[[\d:]+\] \S+:\d+: ")

_REFUSALS = (TandemError, VLLMClientError, ValueError)


class _ChatRequest(ChatCompletionRequest):  # type: ignore[misc]
    """A chat request without vLLM's length checks: ours count exactly and use other words."""

    def build_tok_params(self, model_config: Any) -> Any:
        return replace(super().build_tok_params(model_config), max_total_tokens=None)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request that is tokenized and ready for the engine, and the reader of its answer."""

    engine_input: Any
    sampling: SamplingParams
    token_ids: list[int]
    answer: Answer
    reasoning: dict[str, Any]


class Prompts:
    """Makes prompts of requests for one model. `chat` is vLLM's `OpenAIServingChat`."""

    def __init__(self, chat: Any, entry: ModelEntry, *, budgets: bool) -> None:
        self._chat = chat
        self._entry = entry
        self._budgets = budgets
        self._system_first = False

    async def learn_template(self) -> None:
        """Find out whether the chat template refuses system messages after the first turn."""
        turns = (Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.SYSTEM, Role.USER)
        request = GenerationRequest(
            id="",
            model=self._entry.id,
            messages=tuple(Message(role=role, parts=(TextPart("?"),)) for role in turns),
            sampling=Sampling(max_tokens=1),
            deadline_s=0,
        )
        try:
            await self._apply_template(request)
        except _REFUSALS:
            self._system_first = True

    async def render(self, request: GenerationRequest) -> Prompt:
        """Return the prompt. Raises `TandemError` on a request that cannot be run."""
        self._refuse_hopeless(request)
        if schemas := list(enforced_schemas(request)):
            await asyncio.to_thread(_check_schemas, schemas)
        chat, engine_input = await self._apply_template(request)
        token_ids = engine_input["prompt_token_ids"]
        max_tokens = allowed_tokens(
            prompt_tokens=len(token_ids),
            sampling=request.sampling,
            context_tokens=self._entry.context_tokens,
        )
        parser = self._parser(request, chat)
        answer: Answer = PlainAnswer()
        if not max_tokens:
            answer = NoAnswer()
        elif parser is not None:
            one_call = not request.tool_choice.parallel
            answer = ParsedAnswer(parser, chat, token_ids, one_call=one_call)
        if request.sampling.logprobs is not None:
            answer = ScoredAnswer(answer, partial(self._scores, request.sampling.logprobs))
        return Prompt(
            engine_input=engine_input,
            # The engine puts out one token at least.
            sampling=chat.to_sampling_params(
                max(1, max_tokens), self._chat.default_sampling_params
            ),
            token_ids=token_ids,
            answer=answer,
            reasoning=self._reasoning(chat, parser, token_ids),
        )

    async def count(self, request: GenerationRequest) -> int:
        """Return how many tokens the prompt has. Raises `TandemError`."""
        if estimate := self._hopeless_tokens(request):
            return estimate
        _, engine_input = await self._apply_template(request)
        return len(engine_input["prompt_token_ids"])

    async def marked_tokens(self, request: GenerationRequest, token_ids: Sequence[int]) -> int:
        """Return how many tokens of its prompt lie before the request's cache mark.

        0 where the template takes the whole conversation but no beginning of it.
        """
        prefix = marked_prefix(request)
        if prefix is None:
            return 0
        try:
            # What begins the answer is behind the mark, wherever that stands.
            _, engine_input = await self._apply_template(prefix, begin_answer=False)
        except _REFUSALS:
            return 0
        return common_length(token_ids, engine_input["prompt_token_ids"])

    async def _apply_template(
        self, request: GenerationRequest, *, begin_answer: bool = True
    ) -> tuple[_ChatRequest, Any]:
        if self._system_first:
            request = system_first(request)
        fields = chat_fields(request, self._entry)
        if self._budgets and request.thinking is not False:
            fields["thinking_token_budget"] = request.thinking_budget_tokens
        chat = _ChatRequest(**fields, add_generation_prompt=begin_answer)
        try:
            rendered = await self._chat.render_chat_request(chat)
        except ValueError as error:
            if not _has_image(request):
                raise
            raise TandemError(ErrorCode.INVALID_REQUEST, "an image cannot be read") from error
        if isinstance(rendered, ErrorResponse):
            raise TandemError(ErrorCode.INVALID_REQUEST, rendered.error.message)
        _, (engine_input,) = rendered
        return chat, engine_input

    def _parser(self, request: GenerationRequest, chat: _ChatRequest) -> Any:
        """Return vLLM's parser for the answer, or None where there is nothing to parse."""
        parser_class = self._chat.parser_cls
        if parser_class is None:
            return None
        if parser_class.reasoning_parser_cls is None and not may_call(request):
            return None
        return parser_class(
            self._chat.renderer.tokenizer,
            chat.tools,
            chat_template_kwargs=self._template_kwargs(chat),
            model_config=self._chat.model_config,
        )

    def _template_kwargs(self, chat: _ChatRequest) -> dict[str, Any]:
        kwargs: dict[str, Any] = self._chat.online_renderer.effective_chat_template_kwargs(chat)
        return kwargs

    def _reasoning(self, chat: _ChatRequest, parser: Any, token_ids: list[int]) -> dict[str, Any]:
        """Return what tells the engine where reasoning ends, and so where a grammar begins."""
        if parser is None or parser.reasoning_parser is None:
            return {}
        return {
            "reasoning_ended": chat.resolve_reasoning_ended(parser, token_ids),
            "reasoning_parser_kwargs": {"chat_template_kwargs": self._template_kwargs(chat)},
        }

    def _scores(self, likeliest: int, completion: Any) -> list[TokenLogprob]:
        """Return the log probabilities of one step's tokens, by vLLM's own rules."""
        scores = self._chat._create_chat_logprobs(
            token_ids=completion.token_ids,
            top_logprobs=completion.logprobs,
            tokenizer=self._chat.renderer.tokenizer,
            num_output_top_logprobs=likeliest,
        )
        return [
            TokenLogprob(_likely(place), tuple(map(_likely, place.top_logprobs)))
            for place in scores.content
        ]

    def _refuse_hopeless(self, request: GenerationRequest) -> None:
        """Refuse a prompt that cannot fit whatever its tokens, at a price that does not grow."""
        if tokens := self._hopeless_tokens(request):
            allowed_tokens(
                prompt_tokens=tokens,
                sampling=request.sampling,
                context_tokens=self._entry.context_tokens,
            )

    def _hopeless_tokens(self, request: GenerationRequest) -> int:
        """Estimate the tokens of a prompt that cannot fit, from its beginning; 0: it may fit.

        Tokenizing tens of megabytes would hold a core for as long as it takes.
        """
        tokenizer = self._chat.renderer.tokenizer
        texts = list(_texts(request))
        chars = sum(map(len, texts))
        context_tokens = self._entry.context_tokens
        if chars <= context_tokens * tokenizer.max_chars_per_token:
            return 0
        sample = "".join(texts)[:_SAMPLE_CHARS]
        tokens = len(tokenizer.encode(sample, add_special_tokens=False)) * chars // len(sample)
        return max(tokens, context_tokens + 1)


def _likely(scored: Any) -> Likely:
    return Likely(scored.token, scored.logprob, bytes(scored.bytes or ()))


def _check_schemas(schemas: Iterable[tuple[str, Schema]]) -> None:
    """Raise `TandemError` unless the answer can be held to all that it must match."""
    for subject, schema in schemas:
        check_enforceable(schema, subject)
        try:
            xgrammar.Grammar.from_json_schema(msgspec.json.encode(schema).decode())
        except (RuntimeError, ValueError) as error:
            why = _COMPILER_PREFIX.sub("", str(error)).strip()
            raise TandemError(
                ErrorCode.INVALID_REQUEST, f"{subject}: the schema cannot be compiled: {why}"
            ) from None


def _has_image(request: GenerationRequest) -> bool:
    parts = [part for message in request.messages for part in message.parts]
    shown = [inner for part in parts if isinstance(part, ToolResultPart) for inner in part.parts]
    return any(isinstance(part, ImagePart) for part in (*parts, *shown))


def _texts(request: GenerationRequest) -> Iterator[str]:
    for message in request.messages:
        yield from _part_texts(message.parts)
    for tool in request.tools:
        yield tool.description


def _part_texts(parts: Iterable[Part]) -> Iterator[str]:
    for part in parts:
        match part:
            case TextPart(text=text) | ThinkingPart(text=text):
                yield text
            case ToolCallPart(arguments=arguments):
                yield arguments
            case ToolResultPart(parts=inner):
                yield from _part_texts(inner)
