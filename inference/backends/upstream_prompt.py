"""What upstream backends share on a request's way out. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import msgspec

from inference.backends.port import Tally
from inference.backends.schemas import check_size
from inference.catalogue import ModelEntry
from inference.errors import ErrorCode, TandemError
from inference.request import (
    GenerationRequest,
    Message,
    Part,
    Role,
    Sampling,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from inference.upstreams import UpstreamOptions

# A long token: nobody pays for tokens of which nobody says that they were made.
_CHARS_PER_TOKEN = 5


def prepared(
    request: GenerationRequest, entry: ModelEntry, options: UpstreamOptions
) -> GenerationRequest:
    """Return the request with the operator's system prompt and default sampling.

    Raises `TandemError` (INVALID_REQUEST) for a tool that is too large to handle.
    """
    for tool in request.tools:
        check_size(tool.schema, f"tool '{tool.name}'")
    sampling = _with_defaults(request.sampling, entry.default_sampling)
    request = msgspec.structs.replace(request, sampling=sampling)
    return _with_system(request, options.system) if options.system else request


def check_carried(
    request: GenerationRequest, carried: Iterable[str], entry: ModelEntry, api: str
) -> None:
    """Raise `TandemError` (INVALID_REQUEST) naming a parameter that the upstream's API lacks.

    `carried` are those of its parameters that it has. One that changes nothing is no reason.
    """
    sampling = request.sampling
    asked = {
        "top_k": sampling.top_k is not None,
        "seed": sampling.seed is not None,
        "min_p": bool(sampling.min_p),
        "min_tokens": bool(sampling.min_tokens),
        "frequency_penalty": bool(sampling.frequency_penalty),
        "presence_penalty": bool(sampling.presence_penalty),
        "repetition_penalty": sampling.repetition_penalty not in (None, 1),
        "logit_bias": bool(sampling.logit_bias),
        "logprobs": sampling.logprobs is not None,
    }
    names = set(carried)
    for name, is_asked in asked.items():
        if is_asked and name not in names:
            raise TandemError(
                ErrorCode.INVALID_REQUEST,
                f"{name}: the model '{entry.id}' is served through {api}, which cannot carry "
                f"`{name}`. Remove it, or use another model.",
                param=name,
            )


def without_nulls(fields: dict[str, Any]) -> dict[str, Any]:
    """Leave out what has no value, and what the operator has taken out by giving it none."""
    return {name: value for name, value in fields.items() if value is not None}


class TokenEstimate:
    """Counts what an upstream has put out until it says so itself, into a tally.

    Most send token by token. Where pieces are larger, their length tells more.
    """

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._pieces = 0
        self._chars = 0

    def add(self, text: str) -> None:
        """Count a piece of the output, whatever it is part of."""
        if text:
            self._pieces += 1
            self._chars += len(text)
            self._tally.output_tokens = max(self._pieces, self._chars // _CHARS_PER_TOKEN)


def estimated_prompt_tokens(request: GenerationRequest) -> int:
    """Return about how many tokens a prompt has, without its images."""
    tools = sum(len(tool.name) + len(tool.description) for tool in request.tools)
    size = sum(_size(part) for message in request.messages for part in message.parts)
    return max(1, math.ceil((tools + size) / _CHARS_PER_TOKEN))


def _size(part: Part) -> int:
    match part:
        case TextPart(text=text) | ThinkingPart(text=text):
            return len(text)
        case ToolCallPart(name=name, arguments=arguments):
            return len(name) + len(arguments)
        case ToolResultPart(parts=parts):
            return sum(map(_size, parts))
    return 0


def _with_defaults(sampling: Sampling, defaults: dict[str, float]) -> Sampling:
    missing = {
        name: value for name, value in defaults.items() if getattr(sampling, name, 0) is None
    }
    if "top_k" in missing:
        missing["top_k"] = int(missing["top_k"])
    return msgspec.structs.replace(sampling, **missing)


def _with_system(request: GenerationRequest, text: str) -> GenerationRequest:
    """Say it before all else that the system says: templates want one system turn."""
    match request.messages:
        case (Message(role=Role.SYSTEM, parts=(TextPart(text=said), *rest)), *others):
            first = Message(role=Role.SYSTEM, parts=(TextPart(f"{text}\n\n{said}"), *rest))
            return msgspec.structs.replace(request, messages=(first, *others))
    mark = request.cache_mark
    if mark is not None and mark.message >= 0:
        mark = msgspec.structs.replace(mark, message=mark.message + 1)
    first = Message(role=Role.SYSTEM, parts=(TextPart(text),))
    return msgspec.structs.replace(request, messages=(first, *request.messages), cache_mark=mark)
