"""The front desk: lets requests in by balance and limits, and records what became of each."""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from typing import NamedTuple

import msgspec

from gateway.accounting.limiter import Limiter
from gateway.config import Config
from gateway.errors import Header
from gateway.http.request import ApiRequest
from gateway.keys import Principal
from inference.catalogue import ModelEntry
from inference.errors import ErrorCode, TandemError
from inference.events import Failed, Finished, Usage
from inference.fold import AnswerPart
from inference.request import GenerationRequest, ImagePart
from inference.transport.record_writer import RecordWriter
from inference.transport.records import Admitted, Closed, Ending
from inference.transport.run import Run
from jobs.pricing import PriceList
from jobs.quota.claims import Claim, Granted

# Hashing this much takes about as long as a thread costs.
_LARGE_BYTES = 1024 * 1024
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_ENDINGS = {ErrorCode.TIMEOUT: Ending.TIMEOUT, ErrorCode.ENGINE_LOST: Ending.ENGINE_LOST}


class Visit(NamedTuple):
    """A request that is ready to be let in."""

    asked: ApiRequest
    principal: Principal
    entry: ModelEntry
    prompt: GenerationRequest
    dialect: str
    stream: bool
    ignored: tuple[str, ...]


class Desk:
    """One for each gateway process."""

    def __init__(self, config: Config, limiter: Limiter, writer: RecordWriter) -> None:
        self._config = config
        self._limiter = limiter
        self._writer = writer

    async def admit(self, visit: Visit, prices: PriceList) -> Ticket:
        """Let a request in, and keep the place that it takes until its ticket is closed.

        Raises `TandemError`: RATE_LIMITED, SPEND_CAP, BALANCE_EXHAUSTED or UNAVAILABLE.
        """
        body = visit.asked.body
        digest = await _digest(body)
        granted = await self._limiter.admit(_claim(visit, prices))
        keeps = self._config.BODY_RETENTION_DAYS > 0 and not visit.principal.zero_data_retention
        limit = self._config.BODY_MAX_BYTES if keeps else -1
        self._writer.put(_admitted(visit, body if len(body) <= limit else None, digest))
        return Ticket(self._limiter, self._writer, visit, granted, limit)


class Ticket:
    """One request that was let in. Close it exactly once, however the request ends."""

    def __init__(
        self,
        limiter: Limiter,
        writer: RecordWriter,
        visit: Visit,
        granted: Granted,
        answer_limit_bytes: int,
    ) -> None:
        self._limiter = limiter
        self._writer = writer
        self._request_id = visit.prompt.id
        self._granted = granted
        self._answer_limit_bytes = answer_limit_bytes

    @property
    def headers(self) -> list[Header]:
        """What the answer tells of the limits."""
        return self._granted.headers

    def refuse(self, error: TandemError) -> None:
        """Close the ticket of a request that no queue would take."""
        self._close(
            Closed(
                request_id=self._request_id,
                at_s=time.time(),
                engine_id=None,
                attempts=0,
                first_token_at_s=None,
                ending=Ending.FAILED,
                detail=error.code,
                message=error.message,
                usage=_NOTHING,
            )
        )

    def close(self, run: Run) -> None:
        """Close the ticket of a request whose run is over."""
        now_s = time.time()
        ending, detail, message, usage = _ending(run)
        first_s = run.first_text_s
        answer = tuple(run.answer.closed())
        encoded = msgspec.msgpack.encode(answer) if answer else b""
        self._close(
            Closed(
                request_id=self._request_id,
                at_s=now_s,
                engine_id=run.engine_id,
                attempts=run.attempt + 1,
                first_token_at_s=None if first_s is None else now_s - (time.monotonic() - first_s),
                ending=ending,
                detail=detail,
                message=message,
                usage=usage,
                answer=answer if len(encoded) <= self._answer_limit_bytes else None,
                answer_digest=hashlib.sha256(encoded).digest() if answer else b"",
            )
        )

    def _close(self, closed: Closed) -> None:
        self._writer.put(closed)
        self._limiter.release(self._granted, closed.usage)


_NOTHING = Usage(prompt_tokens=0, cached_tokens=0, output_tokens=0)


def _ending(run: Run) -> tuple[Ending, str, str, Usage]:
    seen = Usage(prompt_tokens=run.prompt_tokens or 0, cached_tokens=0, output_tokens=0)
    match run.end:
        case Finished(reason=reason, usage=usage):
            return Ending.FINISHED, reason, "", usage
        case Failed(code=code, message=message):
            return _ENDINGS.get(code, Ending.FAILED), code, message, seen
    return Ending.CANCELLED, Ending.CANCELLED, "", seen


async def _digest(body: bytes) -> bytes:
    if len(body) > _LARGE_BYTES:
        return await asyncio.to_thread(lambda: hashlib.sha256(body).digest())
    return hashlib.sha256(body).digest()


def _claim(visit: Visit, prices: PriceList) -> Claim:
    raise NotImplementedError


def _admitted(visit: Visit, body: bytes | None, digest: bytes) -> Admitted:
    asked, prompt, principal = visit.asked, visit.prompt, visit.principal
    client = asked.scope.get("client") or ("", 0)
    trace = _TRACEPARENT.match(_text(asked, b"traceparent"))
    return Admitted(
        request_id=prompt.id,
        at_s=time.time(),
        deadline_s=prompt.deadline_s,
        team_id=principal.team_id,
        team_name=principal.team_name,
        key_id=principal.key_id,
        key_name=principal.key_name,
        dialect=visit.dialect,
        model=prompt.model,
        lane=prompt.lane,
        stream=visit.stream,
        max_tokens=prompt.sampling.max_tokens,
        client=_text(asked, b"user-agent")[:200],
        address=str(client[0])[:64],
        trace_id=trace[1] if trace else "",
        session_id=_text(asked, b"x-claude-code-session-id")[:100],
        ignored=visit.ignored,
        body=body,
        body_digest=digest,
        body_bytes=len(asked.body),
    )


def _text(asked: ApiRequest, header: bytes) -> str:
    # PostgreSQL keeps no NUL, and nobody needs one.
    return (asked.header(header) or b"").decode("latin-1").replace("\0", "")
