"""The canonical events: what every backend yields and every dialect encodes.

A run is `Started`, any number of deltas, then exactly one `Finished` or `Failed`. `Failed` may
also come first. Of a raw request (`GenerationRequest.raw`) raw events come in place of the deltas.
Streaming is the only path; a whole answer is a fold of these (`inference.fold`).
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
    PAUSE = "pause"
    """The server has run tools as often as it may: sent back, the conversation goes on."""
    REFUSAL = "refusal"
    """Whoever runs the model has stopped it: what was asked, or said, is not allowed there."""


CUT_SHORT = frozenset({FinishReason.LENGTH, FinishReason.REFUSAL})
"""The reasons of an end that is not the model's own."""

MAX_TOKENS = 10**9
"""The most that one count of a request can be. Who says more is mistaken."""


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

    def __add__(self, other: Usage) -> Usage:
        """Return what both used."""
        return Usage(
            **{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__}
        )

    def without_prompt(self) -> Usage:
        """Return what the answer alone used."""
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


class ServerToolCall(msgspec.Struct, frozen=True, kw_only=True, tag="server_tool_call"):
    """The server begins to run a tool. `id` is a UUID; `arguments` is one JSON object, whole.

    `server` is the name of the MCP server that has the tool, and `name` the tool's own there.
    """

    id: str
    server: str
    name: str
    arguments: str


class ServerToolResult(
    msgspec.Struct, frozen=True, kw_only=True, tag="server_tool_result", omit_defaults=True
):
    """What a call that the server ran came to."""

    call_id: str
    text: str
    is_error: bool = False


class Finished(msgspec.Struct, frozen=True, kw_only=True, tag="finished"):
    """The answer is whole. `stop_sequence` is the text that matched, for `STOP_SEQUENCE`."""

    reason: FinishReason
    usage: Usage
    stop_sequence: str | None = None


class RawFrame(msgspec.Struct, frozen=True, tag="raw_frame", omit_defaults=True):
    """Whole frames of an upstream's stream, for a caller who is to have them as they are.

    `last`: with its end, or an error, the stream has said all that it will.
    """

    data: bytes
    last: bool = False


class RawAnswer(msgspec.Struct, frozen=True, kw_only=True, tag="raw_answer"):
    """An upstream's whole answer, for a caller who is to have it as it is; `body` is JSON.

    Of its headers those that mean something to the caller, their names in lower case.
    """

    body: bytes
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed", omit_defaults=True):
    """The run ended without an answer; `message` may be shown to the caller.

    `answer` is what the upstream said instead, for a caller who is to have it as it is.
    """

    code: ErrorCode
    message: str
    answer: RawAnswer | None = None


Delta = (
    TextDelta | ThinkingDelta | ToolCallStarted | ToolCallDelta | ServerToolCall | ServerToolResult
)
Raw = RawFrame | RawAnswer
Event = Started | Delta | Raw | Finished | Failed
