"""What became of each request: the records that ledger and audit trail are made of.

Three are written about one request, by those who know: `Admitted` and `Closed` by its gateway,
`Completed` by the engine for each attempt that it ended. They may arrive in any order, more than
once, or not at all where a process was killed; `jobs.recorder` makes one row of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from inference.events import Usage
from inference.request import Lane


class Ending(StrEnum):
    """How a request, or one attempt at it, came to its end."""

    FINISHED = "finished"
    CANCELLED = "cancelled"
    """The client left."""
    TIMEOUT = "timeout"
    FAILED = "failed"
    """The request could not be served; trying again elsewhere would not help."""
    GATEWAY_LOST = "gateway_lost"
    ENGINE_LOST = "engine_lost"
    SUPERSEDED = "superseded"
    """Another engine has taken over the request: this attempt counts for nothing."""


# After these, an engine's record is the last word; after the others the gateway may try again.
FINAL = frozenset(
    {Ending.FINISHED, Ending.CANCELLED, Ending.TIMEOUT, Ending.FAILED, Ending.GATEWAY_LOST}
)


class Admitted(msgspec.Struct, frozen=True, kw_only=True, tag="admitted"):
    """A gateway let a request in. Times are in seconds of Unix time.

    `body` is the request as it was sent, or None where it is not to be kept; `body_digest` is its
    SHA-256 either way. `ignored` names the fields that had no effect.
    A request that its model cannot answer is told of once more when its fallback gets it: `model`
    is that one then, `requested_model` the one that was asked for, and `attempts` how many there
    are with the fallback's first.
    """

    request_id: str
    at_s: float
    deadline_s: float
    team_id: int
    team_name: str
    key_id: str
    key_name: str
    dialect: str
    model: str
    lane: Lane
    stream: bool
    max_tokens: int
    requested_model: str = ""
    attempts: int = 0
    client: str = ""
    address: str = ""
    trace_id: str = ""
    session_id: str = ""
    ignored: tuple[str, ...] = ()
    batch_id: str | None = None
    stream_id: str | None = None
    custom_id: str = ""
    body: bytes | None = None
    body_digest: bytes = b""
    body_bytes: int = 0


class Completed(msgspec.Struct, frozen=True, kw_only=True, tag="completed"):
    """An engine has ended one attempt. `detail` is a finish reason or an error code."""

    request_id: str
    attempt: int
    team_id: int
    key_id: str
    model: str
    lane: Lane
    engine_id: str
    host: str
    taken_at_s: float
    first_token_at_s: float | None
    ended_at_s: float
    ending: Ending
    detail: str
    message: str
    usage: Usage


class Closed(msgspec.Struct, frozen=True, kw_only=True, tag="closed"):
    """A gateway has ended its answer. `engine_id` None: no engine had taken the request.

    `model` is that of the last of the `attempts`; empty: the one that was asked for.
    `usage` is what the gateway saw: whole for a finished request, else no more than the prompt.
    `answer` is what `inference.fold.Parts.kept` says, in MessagePack, or None where they are not
    to be kept; `answer_digest` is their SHA-256 either way.
    """

    request_id: str
    at_s: float
    engine_id: str | None
    attempts: int
    first_token_at_s: float | None
    ending: Ending
    detail: str
    message: str
    usage: Usage
    model: str = ""
    answer: bytes | None = None
    answer_digest: bytes = b""


Record = Admitted | Completed | Closed

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Record)
_entry_decoder = msgspec.msgpack.Decoder(list[msgspec.Raw])


def encode_record(record: Record) -> bytes:
    """Encode one record."""
    return _encoder.encode(record)


def decode_record(data: bytes | msgspec.Raw) -> Record:
    """Decode one record. Raises `msgspec.DecodeError`."""
    return _decoder.decode(data)


def encode_entry(records: Iterable[bytes | msgspec.Raw]) -> bytes:
    """Return the entry of the stream that carries these encoded records."""
    return _encoder.encode([msgspec.Raw(record) for record in records])


def decode_entry(data: bytes) -> list[msgspec.Raw]:
    """Return the encoded records that an entry carries. Raises `msgspec.DecodeError`."""
    return _entry_decoder.decode(data)
