"""Records for tests, and what the rules of docs/decisions/0009 and 0011 make of them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from inference.events import Usage
from inference.request import Lane, TextPart
from inference.transport.records import (
    FINAL,
    Admitted,
    Closed,
    Completed,
    Ending,
    Record,
    encode_entry,
    encode_record,
)

KEY = str(uuid.UUID(int=7))
ENGINE = str(uuid.UUID(int=9))
NOTHING = Usage(prompt_tokens=0, cached_tokens=0, output_tokens=0)
USAGE = Usage(
    prompt_tokens=100,
    cached_tokens=20,
    cache_written_tokens=10,
    output_tokens=30,
    thinking_tokens=5,
)
ANSWER = msgspec.msgpack.encode([TextPart("Paris.")])


def new_id() -> str:
    return str(uuid.uuid4())


def entry_of(*records: Record) -> bytes:
    """Return the entry of the stream that carries these records."""
    return encode_entry(map(encode_record, records))


def admitted(request_id: str, at_s: float | None = None, **fields: Any) -> Admitted:
    """Return what a gateway says first."""
    at_s = time.time() if at_s is None else at_s
    said: dict[str, Any] = {
        "at_s": at_s,
        "deadline_s": at_s + 600,
        "team_id": 1,
        "team_name": "blue",
        "key_id": KEY,
        "key_name": "laptop",
        "dialect": "anthropic",
        "model": "m",
        "lane": Lane.REALTIME,
        "stream": True,
        "max_tokens": 100,
        "client": "anthropic/1.0",
        "address": "127.0.0.1",
        "trace_id": "ab",
        "session_id": "s1",
        "ignored": ("speed",),
        "body": b'{"model":"m"}',
        "body_digest": b"b" * 32,
        "body_bytes": 13,
    }
    return Admitted(request_id=request_id, **(said | fields))


def completed(request_id: str, at_s: float | None = None, **fields: Any) -> Completed:
    """Return what the engine says of a request that was admitted at this time."""
    at_s = time.time() if at_s is None else at_s
    ending = fields.get("ending", Ending.FINISHED)
    said: dict[str, Any] = {
        "attempt": 0,
        "team_id": 1,
        "key_id": KEY,
        "model": "m",
        "lane": Lane.REALTIME,
        "engine_id": ENGINE,
        "host": "host",
        "taken_at_s": at_s + 0.125,
        "first_token_at_s": at_s + 0.25,
        "ended_at_s": at_s + 0.5,
        "ending": ending,
        "detail": "end" if ending is Ending.FINISHED else ending.value,
        "message": "",
        "usage": USAGE,
    }
    return Completed(request_id=request_id, **(said | fields))


def closed(request_id: str, at_s: float | None = None, **fields: Any) -> Closed:
    """Return what the gateway says last of a request that was admitted at this time."""
    at_s = time.time() if at_s is None else at_s
    ending = fields.get("ending", Ending.FINISHED)
    finished = ending is Ending.FINISHED
    seen = Usage(prompt_tokens=USAGE.prompt_tokens, cached_tokens=0, output_tokens=0)
    said: dict[str, Any] = {
        "at_s": at_s + 0.75,
        "engine_id": ENGINE,
        "attempts": 1,
        "first_token_at_s": at_s + 0.375,
        "ending": ending,
        "detail": "end" if finished else ending.value,
        "message": "",
        "usage": USAGE if finished else seen,
        "answer": ANSWER,
        "answer_digest": b"a" * 32,
    }
    return Closed(request_id=request_id, **(said | fields))


def unserved(request_id: str, at_s: float | None = None, **fields: Any) -> Closed:
    """Return what the gateway says of a request that no engine took, to its knowledge."""
    said: dict[str, Any] = {
        "engine_id": None,
        "attempts": 0,
        "first_token_at_s": None,
        "ending": Ending.FAILED,
        "usage": NOTHING,
        "answer": None,
        "answer_digest": b"",
    }
    return closed(request_id, at_s, **(said | fields))


class Bill(NamedTuple):
    """What is to be posted: tokens, and whether they are to be paid for."""

    usage: Usage
    paid: bool


BILLED = {Ending.FINISHED, Ending.CANCELLED, Ending.TIMEOUT}


class Said:
    """What was said of one request, and what follows: the rules again, written the plain way."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.records = list(records)
        self.admitted = any(isinstance(record, Admitted) for record in self.records)
        self.closed = next((each for each in self.records if isinstance(each, Closed)), None)
        self._attempts = [each for each in self.records if isinstance(each, Completed)]
        latest = max(
            [each.attempt + 1 for each in self._attempts]
            + [each.attempts for each in self.records if isinstance(each, Admitted)]
            + ([self.closed.attempts] if self.closed else []),
            default=0,
        )
        self._final = next(
            (
                each
                for each in self._attempts
                if each.attempt + 1 == latest and each.ending in FINAL
            ),
            None,
        )

    @property
    def taken(self) -> bool:
        """Whether an engine had it."""
        return bool(self._attempts) or bool(self.closed and self.closed.engine_id)

    @property
    def complete(self) -> bool:
        """Whether there is nothing more to wait for."""
        if not self.admitted or self.closed is None:
            return False
        return self._final is not None or not self.taken

    @property
    def bill(self) -> Bill | None:
        """What to post once nothing more is waited for."""
        if not self.admitted and not self._attempts:
            return None
        if self.closed and not self.taken:
            return None
        endings = [each.ending for each in (self.closed, self._final) if each]
        usage = NOTHING
        if self._final:
            usage = self._final.usage
        elif self.closed:
            usage = self.closed.usage
        known = self._final is not None or Ending.FINISHED in endings
        return Bill(usage, paid=known and bool(endings) and set(endings) <= BILLED)
