"""From the Chat request to the canonical one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from gateway.dialects.chat.messages import ChatImagePart, ToolMessage, UserMessage
from gateway.dialects.chat.tools import canonical_tools, check_choice
from gateway.dialects.chat.turns import conversation
from gateway.dialects.chat.wire import ChatBody, JsonObjectFormat, JsonSchemaFormat
from gateway.dialects.context import ParseContext
from gateway.dialects.sampling import top_k
from gateway.dialects.validation import invalid_at
from gateway.image_source import ImageSource
from inference.request import GenerationRequest, ImagePart, Sampling

# Objects of a schema have no other members than it names, unless it says so.
_ANY_OBJECT: dict[str, Any] = {"type": "object", "additionalProperties": True}
# OpenAI takes 0, which leaves only the likeliest token; engines want more than that.
_LEAST_TOP_P = 1e-6
_SEEDS = 2**64
# Log probabilities in the several answers of one request: some 50 bytes each, and all of them are
# in memory until the last answer has ended.
_MOST_SCORES = 2_000_000


def image_sources(body: ChatBody) -> list[ImageSource]:
    """Return where the body's images come from, in the order that `to_request` wants them."""
    return [ImageSource(path=path, url=part.image_url.url) for path, part in _images(body)]


def to_request(
    body: ChatBody, context: ParseContext, images: Sequence[ImagePart] = ()
) -> GenerationRequest:
    """Return the canonical request for the first of the answers that are asked for.

    For a model with vision, `images` are what `image_sources` named; without vision none are
    needed. Raises INVALID_REQUEST when the model may not be sent images at all, has nothing to
    answer to, or is to call a tool that is not there.
    """
    if context.vision and len(images) != sum(1 for _ in _images(body)):
        raise ValueError("the images are not those that the body names")
    check_choice(body.tools or (), body.tool_choice, server_tools=context.server_tools)
    if not context.vision and context.images_without_vision == "refuse":
        _refuse_images(body, context.model)
    messages = conversation(body.messages, images if context.vision else None)
    if not messages:
        raise invalid_at("messages", "at least one message must say something")
    parallel = body.parallel_tool_calls is not False
    tools, choice = canonical_tools(body.tools or (), body.tool_choice, parallel=parallel)
    thinking = context.thinks(_thinking(body))
    return GenerationRequest(
        id=context.request_id,
        model=context.model,
        messages=messages,
        sampling=_sampling(body, context.context_tokens),
        deadline_s=context.deadline_s,
        lane=context.lane,
        owner=context.owner,
        cache_salt=context.cache_salt,
        shares_prompt=context.shares_prompt,
        tools=tools,
        tool_choice=choice,
        thinking=thinking,
        thinking_budget_tokens=_budget(body) if thinking else None,
        output_schema=_output_schema(body),
    )


def another_choice(first: GenerationRequest, number: int, request_id: str) -> GenerationRequest:
    """Return the canonical request for one more answer; `number` counts from 0, the first one."""
    seed = first.sampling.seed
    if seed is not None:
        # The same seed would make the same answer.
        seed = (seed + number + _SEEDS // 2) % _SEEDS - _SEEDS // 2
    return msgspec.structs.replace(
        first,
        id=request_id,
        choice=number,
        sampling=msgspec.structs.replace(first.sampling, seed=seed),
    )


def _images(body: ChatBody) -> Iterator[tuple[str, ChatImagePart]]:
    for index, message in enumerate(body.messages):
        if isinstance(message, UserMessage | ToolMessage):
            for position, part in enumerate(message.content):
                if isinstance(part, ChatImagePart):
                    yield f"messages[{index}].content[{position}].image_url.url", part


def _refuse_images(body: ChatBody, model: str) -> None:
    for path, _ in _images(body):
        message = f"model '{model}' has no vision; remove the image or use another"
        raise invalid_at(path.removesuffix(".image_url.url"), message)


def _sampling(body: ChatBody, context_tokens: int) -> Sampling:
    longest = body.max_completion_tokens or body.max_tokens
    _check_scores(body, min(longest or context_tokens, context_tokens))
    return Sampling(
        max_tokens=longest or context_tokens,
        cut_to_context=longest is None,
        temperature=body.temperature,
        top_p=None if body.top_p is None else max(body.top_p, _LEAST_TOP_P),
        top_k=top_k(body.top_k),
        stop=tuple(body.stop or ()),
        seed=body.seed,
        min_p=body.min_p,
        min_tokens=body.min_tokens or 0,
        frequency_penalty=body.frequency_penalty,
        presence_penalty=body.presence_penalty,
        repetition_penalty=body.repetition_penalty,
        logit_bias=body.logit_bias or None,
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
    )


def _check_scores(body: ChatBody, tokens: int) -> None:
    answers = body.n or 1
    scores = answers * tokens * (1 + (body.top_logprobs or 0))
    if body.logprobs and answers > 1 and scores > _MOST_SCORES:
        message = (
            f"{answers} answers of up to {tokens} tokens would have {scores:,} log probabilities, "
            f"more than the maximum of {_MOST_SCORES:,}; lower `n`, `top_logprobs` or "
            "`max_completion_tokens`"
        )
        raise invalid_at("logprobs", message)


def _thinking(body: ChatBody) -> bool | None:
    """Return whether the caller wants the model to think; None for its default.

    Callers spell it in many ways; the plainest one wins.
    """
    spelled = [body.enable_thinking]
    if options := body.chat_template_kwargs:
        spelled += [options.enable_thinking, options.thinking]
    if body.thinking:
        spelled.append(body.thinking.wanted)
    if reasoning := body.reasoning:
        spelled += [reasoning.enabled, _effort(reasoning.effort)]
    spelled.append(_effort(body.reasoning_effort))
    return next((wanted for wanted in spelled if wanted is not None), None)


def _effort(effort: str | None) -> bool | None:
    return None if effort is None else effort != "none"


def _budget(body: ChatBody) -> int | None:
    if body.thinking and body.thinking.budget_tokens:
        return body.thinking.budget_tokens
    return body.reasoning.max_tokens if body.reasoning else None


def _output_schema(body: ChatBody) -> dict[str, Any] | None:
    match body.response_format:
        case JsonObjectFormat():
            return _ANY_OBJECT
        case JsonSchemaFormat(json_schema=named):
            return _ANY_OBJECT if named.json_schema is None else named.json_schema
    return None
