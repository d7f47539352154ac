"""The canonical request: what every dialect is parsed into and every backend is given."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Lane(StrEnum):
    """The queue that a request waits in, most urgent first."""

    REALTIME = "realtime"
    FLEX = "flex"
    BACKGROUND = "background"
    BATCH = "batch"


class Role(StrEnum):
    """Who speaks a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class TextPart(msgspec.Struct, frozen=True, tag="text"):
    """Plain text inside a message."""

    text: str


# A union from the day there is a second kind of part; msgspec tags each on the wire.
Part = TextPart


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of the conversation. `parts` is never empty."""

    role: Role
    parts: tuple[Part, ...]


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """How tokens are chosen. `None` means the model's own default.

    `temperature` 0 is greedy; `top_p` lies in (0, 1]; `top_k` is at least 1; `stop` holds the
    texts that end the answer, none of them empty.
    """

    max_tokens: int
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop: tuple[str, ...] = ()


class GenerationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request for one answer, whichever dialect asked and wherever it runs.

    `id` is a UUID in its canonical form; `model` is a catalogue id; `deadline_s` is in seconds
    of Unix time; `cache_salt` keeps one team's prefix cache apart from another's.
    """

    id: str
    model: str
    messages: tuple[Message, ...]
    sampling: Sampling
    deadline_s: float
    lane: Lane = Lane.REALTIME
    cache_salt: str | None = None
