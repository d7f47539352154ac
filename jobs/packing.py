"""How answers, events and what was asked are kept: MessagePack or JSON, compressed."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import msgspec

from inference.events import Event
from inference.fold import Answer
from inference.request import GenerationRequest

# The lowest level takes a fifth of the time of the usual one, and leaves a tenth more.
_LEVEL = 1
_encoder = msgspec.msgpack.Encoder()
_answers = msgspec.msgpack.Decoder(Answer)
_events = msgspec.msgpack.Decoder(tuple[Event, ...])
_requests = msgspec.msgpack.Decoder(GenerationRequest)


def pack(data: bytes) -> bytes:
    """Compress; nothing stays nothing."""
    return zlib.compress(data, _LEVEL) if data else b""


def unpack(data: bytes) -> bytes:
    """Return what was packed."""
    return zlib.decompress(data) if data else b""


def pack_answer(answer: Answer) -> bytes:
    """Return an answer as a column keeps it."""
    return pack(_encoder.encode(answer))


def unpack_answer(data: bytes) -> Answer:
    """Return the answer that a column has; it must have one."""
    return _answers.decode(zlib.decompress(data))


def pack_events(events: Sequence[Event]) -> bytes:
    """Return a run's events as a column keeps them."""
    return pack(_encoder.encode(events)) if events else b""


def unpack_events(data: bytes) -> tuple[Event, ...]:
    """Return the events that a column has, or none."""
    return _events.decode(zlib.decompress(data)) if data else ()


def pack_request(request: GenerationRequest) -> bytes:
    """Return a canonical request as `Work.request` keeps it: PostgreSQL compresses long ones."""
    return _encoder.encode(request)


def unpack_request(data: bytes) -> GenerationRequest:
    """Return the canonical request that `Work.request` has."""
    return _requests.decode(data)
