"""The front desk: lets requests in by balance and limits, and records what became of each."""

from __future__ import annotations

import asyncio
import hashlib
import time
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from gateway.accounting.credentials import hide_in_body
from gateway.accounting.headers import limit_headers
from gateway.accounting.limiter import Limiter, estimate_tokens
from gateway.accounting.origin import origin_of
from gateway.accounting.reserve import most_micros
from gateway.config import Config
from gateway.dialects.unknown import MAX_KEPT_NAMES
from gateway.errors import Header
from gateway.http.request import ApiRequest
from gateway.keys import Principal
from inference.catalogue import ModelEntry
from inference.errors import ErrorCode, TandemError
from inference.events import Failed, Finished, Usage
from inference.request import GenerationRequest
from inference.transport.record_writer import RecordWriter
from inference.transport.records import Admitted, Closed, Ending
from inference.transport.run import Run
from jobs.pricing import PriceList, PriceVersion
from jobs.quota.claims import Claim, Granted, Limits, Spend

# A request ends at its deadline; only what belongs to a process that died is in flight for longer.
_LEASE_GRACE_S = 5.0
# Hashing this much takes about as long as a thread costs.
_LARGE_BYTES = 1024 * 1024
_ENDINGS = {ErrorCode.TIMEOUT: Ending.TIMEOUT, ErrorCode.ENGINE_LOST: Ending.ENGINE_LOST}
_NOTHING = Usage(prompt_tokens=0, cached_tokens=0, output_tokens=0)


class Visit(NamedTuple):
    """A request that is ready to be let in."""

    asked: ApiRequest
    principal: Principal
    entry: ModelEntry
    prompt: GenerationRequest
    dialect: str
    stream: bool
    ignored: tuple[str, ...]


class Announced(NamedTuple):
    """A request that will be let in later: the most it can cost, and its body's SHA-256."""

    hold_micros: int
    body_digest: bytes
    headers: list[Header]


class Entry(NamedTuple):
    """What a request was let in with: its claim, and what was recorded of it but for its body."""

    claim: Claim
    record: Admitted


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
        body = hide_in_body(visit.asked.body)
        digest = await _digest(body)
        # One moment for both: a price that begins in between would cost more than is held.
        now = datetime.now(UTC)
        claim = _claim(visit, prices.at(visit.prompt.model, now))
        granted = await self._limiter.admit(claim)
        keeps = self._config.BODY_RETENTION_DAYS > 0 and not visit.principal.zero_data_retention
        limit = self._config.BODY_MAX_BYTES if keeps else -1
        # It says the same for every one of several answers.
        kept = body if len(body) <= limit and not visit.prompt.choice else None
        record = _admitted(visit, now, digest)
        self._writer.put(msgspec.structs.replace(record, body=kept))
        return Ticket(self._limiter, self._writer, Entry(claim, record), granted, limit)

    async def hold(self, ticket: Ticket, visit: Visit, prices: PriceList) -> None:
        """Hold what a request that was let in may cost at its fallback, which `visit` is for.

        What it holds already is a part of that. Raises as `admit` does: nothing has changed then.
        """
        claim = _claim(visit, prices.at(visit.prompt.model, ticket.admitted_at))
        await self._limiter.admit(claim)
        ticket.hold(claim)

    async def announce(self, visit: Visit, prices: PriceList) -> Announced:
        """Check that a request that is run later would be let in now.

        It counts among the requests of its minute, and keeps no place: what it costs is held when
        it is run. Raises like `admit`.
        """
        claim = _claim(visit, prices.at(visit.prompt.model, datetime.now(UTC)))
        hold_micros = 0 if claim.spend is None else claim.spend.hold_micros
        # Tokens and places are those of the minute that it runs in.
        claim = msgspec.structs.replace(
            claim, input_tokens=0, team=_only_requests(claim.team), key=_only_requests(claim.key)
        )
        granted = await self._limiter.admit(claim)
        self._limiter.withdraw(claim)
        digest = await _digest(hide_in_body(visit.asked.body))
        return Announced(hold_micros, digest, limit_headers(granted))


class Ticket:
    """One request that was let in. Close it exactly once, however the request ends.

    `headers` tell of the limits that it was subject to.
    """

    def __init__(
        self,
        limiter: Limiter,
        writer: RecordWriter,
        entry: Entry,
        granted: Granted,
        answer_limit_bytes: int,
    ) -> None:
        self._limiter = limiter
        self._writer = writer
        self._claim, self._record = entry
        self._answer_limit_bytes = answer_limit_bytes
        self.headers = limit_headers(granted)

    @property
    def admitted_at(self) -> datetime:
        """When it was let in: its price is that of this moment, whichever model answers."""
        return datetime.fromtimestamp(self._record.at_s, UTC)

    def hold(self, claim: Claim) -> None:
        """Note a further claim, which was granted."""
        if claim.binding:
            self._claim = claim

    def pass_on(self, visit: Visit, attempts: int) -> None:
        """Record that the fallback, which `visit` is for, has got the request."""
        prompt = visit.prompt
        self._record = msgspec.structs.replace(
            self._record,
            model=prompt.model,
            requested_model=self._record.model,
            attempts=attempts,
            max_tokens=prompt.sampling.max_tokens,
            ignored=visit.ignored[:MAX_KEPT_NAMES],
        )
        self._writer.put(self._record)

    def refuse(self, error: TandemError) -> None:
        """Close the ticket of a request that no queue would take."""
        self._close(self._unserved(Ending.FAILED, error.code, error.message), 0)

    def abandon(self) -> None:
        """Close the ticket of a request whose client left before it was in a queue."""
        self._close(self._unserved(Ending.CANCELLED, Ending.CANCELLED, ""), 0)

    def _unserved(self, ending: Ending, detail: str, message: str) -> Closed:
        return Closed(
            request_id=self._claim.request_id,
            at_s=time.time(),
            engine_id=None,
            attempts=0,
            first_token_at_s=None,
            ending=ending,
            detail=detail,
            message=message,
            usage=_NOTHING,
            model=self._record.model,
        )

    def close(self, run: Run) -> None:
        """Close the ticket of a request whose run is over."""
        now_s = time.time()
        ending, detail, message, usage = _ending(run)
        if not run.request.counts_prompt:
            usage = usage.without_prompt()
        first_s = run.first_text_s
        parts = run.answer.kept()
        answer = msgspec.msgpack.encode(parts) if parts else None
        self._close(
            Closed(
                request_id=self._claim.request_id,
                at_s=now_s,
                engine_id=run.engine_id,
                attempts=run.attempt + 1,
                first_token_at_s=None if first_s is None else now_s - (time.monotonic() - first_s),
                ending=ending,
                detail=detail,
                message=message,
                usage=usage,
                model=self._record.model,
                answer=answer if answer and len(answer) <= self._answer_limit_bytes else None,
                answer_digest=hashlib.sha256(answer).digest() if answer else b"",
            ),
            # Of an answer that was broken off only the engine knows how many tokens it had.
            usage.output_tokens or run.deltas,
        )

    def _close(self, closed: Closed, output_tokens: int) -> None:
        self._writer.put(closed)
        self._limiter.release(self._claim, closed.usage.prompt_tokens, output_tokens)


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


def _claim(visit: Visit, price: PriceVersion | None) -> Claim:
    principal, prompt, entry = visit.principal, visit.prompt, visit.entry
    size = len(visit.asked.body)
    return Claim(
        request_id=prompt.id,
        team_id=principal.team_id,
        key_id=principal.key_id,
        input_tokens=estimate_tokens(size if prompt.counts_prompt else 0, entry.context_tokens),
        lease_ms=round(1000 * (prompt.deadline_s - time.time() + _LEASE_GRACE_S)),
        team=principal.team_limits,
        key=principal.key_limits,
        spend=Spend(
            hold_micros=most_micros(price, entry, prompt, size),
            prepaid=principal.prepaid,
            daily_cap_micros=principal.daily_spend_cap_micros,
            monthly_cap_micros=principal.monthly_spend_cap_micros,
        ),
    )


def _only_requests(limits: Limits) -> Limits:
    return Limits(requests_per_minute=limits.requests_per_minute)


def _admitted(visit: Visit, at: datetime, digest: bytes) -> Admitted:
    asked, prompt, principal = visit.asked, visit.prompt, visit.principal
    client, address, trace_id, session_id = origin_of(asked)
    return Admitted(
        request_id=prompt.id,
        at_s=at.timestamp(),
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
        client=client,
        address=address,
        trace_id=trace_id,
        session_id=session_id,
        ignored=visit.ignored[:MAX_KEPT_NAMES],
        body_digest=digest,
        body_bytes=len(asked.body),
    )
