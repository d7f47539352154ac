"""The most that a request can cost, which is held while it runs: of several rounds, the first."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from inference.catalogue import ModelEntry
from inference.mcp.offering import offers_tools
from inference.request import (
    GenerationRequest,
    ImagePart,
    Part,
    ServerToolCallPart,
    ServerToolResultPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from jobs.pricing import PriceVersion, reserve_micros

# The names that upstreams know the limit of an answer by.
_LIMITS = ("max_tokens", "max_completion_tokens")
# What a chat template may put around a part.
_AROUND_BYTES = 16


def most_micros(
    price: PriceVersion | None, entry: ModelEntry, prompt: GenerationRequest, body_bytes: int
) -> int:
    """Return the most that a request can cost whose body has so many bytes."""
    options = entry.upstream_options
    parameters = options.get("parameters") or {}
    limits = (value for name in _LIMITS if isinstance(value := parameters.get(name), int))
    return reserve_micros(
        price,
        _most_bytes(entry, prompt, body_bytes),
        max(prompt.sampling.max_tokens, *limits, 0),
        entry.context_tokens,
        prompt.lane,
    )


def _most_bytes(entry: ModelEntry, prompt: GenerationRequest, body_bytes: int) -> int | None:
    """Return how many bytes a prompt has at most; None if nobody can tell.

    An image has as many tokens as it likes, tools of servers are known to engines only, and who
    knows what an upstream fetches. The body of one that goes on where another ended does not say
    all, nor does any what the operator adds.
    """
    if not prompt.counts_prompt:
        return 0
    if prompt.raw is not None or offers_tools(entry, prompt):
        return None
    said = 0
    for part in _parts(prompt):
        if isinstance(part, ImagePart):
            return None
        said += _AROUND_BYTES + _bytes(part)
    added = len(msgspec.json.encode(entry.upstream_options)) if entry.upstream_options else 0
    return max(body_bytes, said) + added


def _bytes(part: Part) -> int:
    match part:
        case TextPart(text=text) | ThinkingPart(text=text) | ServerToolResultPart(text=text):
            return len(text.encode())
        case (
            ToolCallPart(name=name, arguments=text) | ServerToolCallPart(name=name, arguments=text)
        ):
            return len(name.encode()) + len(text.encode())
    return 0


def _parts(prompt: GenerationRequest) -> Iterator[Part]:
    for message in prompt.messages:
        for part in message.parts:
            yield part
            if isinstance(part, ToolResultPart):
                yield from part.parts
