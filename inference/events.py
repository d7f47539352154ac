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


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts of one request. `prompt_tokens` includes `cached_tokens`."""

    prompt_tokens: int
    cached_tokens: int
    output_tokens: int


class Started(msgspec.Struct, frozen=True, tag="started"):
    """The prompt is tokenized and handed to the engine."""

    prompt_tokens: int


class TextDelta(msgspec.Struct, frozen=True, tag="text"):
    """The next piece of the answer; never empty."""

    text: str


class Finished(msgspec.Struct, frozen=True, kw_only=True, tag="finished"):
    """The answer is whole. `stop_sequence` is the text that matched, for `STOP_SEQUENCE`."""

    reason: FinishReason
    usage: Usage
    stop_sequence: str | None = None


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """The run ended without an answer; `message` may be shown to the caller."""

    code: ErrorCode
    message: str


Event = Started | TextDelta | Finished | Failed
