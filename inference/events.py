"""The canonical events: what every backend yields and every dialect encodes.

A run is `Started`, any number of deltas, then exactly one `Finished` or `Failed`. `Failed` may
also come first. Streaming is the only path; a whole answer is a fold of these (`inference.fold`).
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from inference.errors import ErrorCode


class FinishReason(StrEnum):
    """Why generation ended."""

    END = "end"
    STOP_SEQUENCE = "stop_sequence"
    LENGTH = "length"
    TOOL_USE = "tool_use"


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts of one request.

    `prompt_tokens` includes `cached_tokens`, which the prefix cache had, and
    `cache_written_tokens`, which lie before the request's cache mark and were not in the cache.
    `output_tokens` includes `thinking_tokens`.
    """

    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    cache_written_tokens: int = 0
    thinking_tokens: int = 0

    def of_choice(self, choice: int) -> Usage:
        """Return what counts of one of several answers to a prompt: the prompt does only once."""
        if not choice:
            return self
        return msgspec.structs.replace(
            self, prompt_tokens=0, cached_tokens=0, cache_written_tokens=0
        )


class Started(msgspec.Struct, frozen=True, tag="started"):
    """The prompt is tokenized and handed to the engine."""

    prompt_tokens: int


# Millions of these may be alive at once, and none can be in a cycle: the collector leaves them out.
class Likely(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A token and the natural logarithm of its probability. `token` is its text, as far as one
    token can be text; `data` its bytes."""

    token: str
    logprob: float
    data: bytes


class TokenLogprob(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The token that was taken at one place, and the likeliest ones there, most likely first."""

    taken: Likely
    likeliest: tuple[Likely, ...] = ()


class TextDelta(msgspec.Struct, frozen=True, tag="text", omit_defaults=True):
    """The next piece of the answer; never empty.

    `logprobs` are those of the tokens that were made since the last piece, where asked for.
    """

    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


class ThinkingDelta(msgspec.Struct, frozen=True, tag="thinking"):
    """The next piece of the reasoning, which comes before the text; never empty."""

    text: str


class ToolCallStarted(msgspec.Struct, frozen=True, kw_only=True, tag="tool_call"):
    """A call of a tool begins; its arguments follow before anything else does. `id` is a UUID."""

    id: str
    name: str


class ToolCallDelta(msgspec.Struct, frozen=True, tag="tool_call_delta"):
    """The next piece of the call's arguments. All pieces together are one JSON object."""

    arguments: str


class Finished(msgspec.Struct, frozen=True, kw_only=True, tag="finished"):
    """The answer is whole. `stop_sequence` is the text that matched, for `STOP_SEQUENCE`."""

    reason: FinishReason
    usage: Usage
    stop_sequence: str | None = None


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """The run ended without an answer; `message` may be shown to the caller."""

    code: ErrorCode
    message: str


Delta = TextDelta | ThinkingDelta | ToolCallStarted | ToolCallDelta
Event = Started | Delta | Finished | Failed
