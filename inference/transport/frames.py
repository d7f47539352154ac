"""What travels on the streams, as MessagePack."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from inference.events import Event
from inference.request import GenerationRequest
from inference.transport.figures import EngineFigures


class EngineState(StrEnum):
    """Where an engine worker is in its life."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    FAILED = "failed"


class EngineReport(msgspec.Struct, frozen=True, kw_only=True):
    """One engine's heartbeat. `kv_use` is a share between 0 and 1; `reason` says why it failed.

    `in_flight` counts what gateways wait for, `work_in_flight` batches' rows and the like.
    `figures` is what metrics are made of.
    """

    engine_id: str
    model: str
    host: str
    pid: int
    state: EngineState
    capacity: int
    in_flight: int
    kv_use: float | None
    started_at_s: float
    reason: str = ""
    work_in_flight: int = 0
    figures: EngineFigures = EngineFigures()


class QueueEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A request on its way to an engine. `attempt` counts the engines that died under it."""

    gateway_id: str
    attempt: int
    request: GenerationRequest


class Accepted(msgspec.Struct, frozen=True, tag="accepted"):
    """The first frame of an attempt: this engine has taken the request."""

    engine_id: str


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """One event of one attempt at a request. `seq` counts from 0, so that a loss is noticed."""

    request_id: str
    attempt: int
    engine_id: str
    seq: int
    body: Accepted | Event


class CancelReason(StrEnum):
    """Why a gateway no longer wants an attempt: what was used until now is billed, or is not."""

    CLIENT_LEFT = "client_left"
    TIMEOUT = "timeout"
    SUPERSEDED = "superseded"
    """Another engine has the request, or had it before."""


class Order(StrEnum):
    """What an operator tells an engine to do."""

    DRAIN = "drain"
    """Take nothing new, and let what runs end."""
    RESUME = "resume"
    """Take requests and work again, after a drain."""
    RELOAD = "reload"
    """Take nothing new, let realtime requests end, give work back, and be started anew."""


class Cancel(msgspec.Struct, frozen=True, kw_only=True):
    """A gateway no longer wants this attempt at a request."""

    request_id: str
    attempt: int
    reason: CancelReason = CancelReason.CLIENT_LEFT


_encoder = msgspec.msgpack.Encoder()
_frames = msgspec.msgpack.Decoder(list[Frame])
_entry = msgspec.msgpack.Decoder(QueueEntry)
_report = msgspec.msgpack.Decoder(EngineReport)
_cancel = msgspec.msgpack.Decoder(Cancel)


def encode(value: list[Frame] | QueueEntry | EngineReport | Cancel) -> bytes:
    """Encode anything that travels."""
    return _encoder.encode(value)


def decode_frames(data: bytes) -> list[Frame]:
    """Decode one entry of a reply stream. Raises `msgspec.DecodeError`."""
    return _frames.decode(data)


def decode_entry(data: bytes) -> QueueEntry:
    """Decode one entry of a queue. Raises `msgspec.DecodeError`."""
    return _entry.decode(data)


def decode_report(data: bytes) -> EngineReport:
    """Decode a heartbeat. Raises `msgspec.DecodeError`."""
    return _report.decode(data)


def decode_cancel(data: bytes) -> Cancel:
    """Decode one entry of a control stream. Raises `msgspec.DecodeError`."""
    return _cancel.decode(data)
