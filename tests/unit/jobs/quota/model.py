"""What the scripts do, written down a second time, plainly: time passes, everything is refilled."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from jobs.ledger import AccountState
from jobs.quota.claims import (
    Capped,
    Claim,
    Decision,
    Ended,
    Exhausted,
    Granted,
    Holder,
    Limit,
    Limits,
    Period,
    RateLimited,
    Unknown,
)
from tests.unit.jobs.quota.kit import DAY_MS, KINDS, MINUTE_MS, make_state


@dataclass
class Request:
    claim: Claim
    flies_until_ms: int
    kept_until_ms: int
    prompt_tokens: int
    output_tokens: int = 0
    flying: bool = True


@dataclass
class QuotaModel:
    """One team's quota. Limits are given once, as they do not change in these tests."""

    now_ms: int
    limits: dict[str, Limits]
    state: AccountState | None = None
    requests: dict[str, Request] = field(default_factory=dict)
    levels: dict[tuple[str, Limit], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for holder in self.limits:
            for kind in KINDS:
                if (limit := self.limit(holder, kind)) is not None:
                    self.levels[holder, kind] = limit * MINUTE_MS

    def limit(self, holder: str, kind: Limit) -> int | None:
        limit: int | None = getattr(self.limits[holder], f"{kind}_per_minute")
        return limit

    def advance(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        for holder, kind in self.levels:
            limit = self.limit(holder, kind) or 0
            self._take(holder, kind, -milliseconds * limit)

    def admit(self, claim: Claim) -> Decision:
        if (known := self.requests.get(claim.request_id)) is not None:
            return self._admit_again(known, claim)
        self.sweep()
        refusal = self._broke(claim) or self._limited(claim)
        if refusal is not None:
            return refusal
        ends = self.now_ms + claim.lease_ms
        self.requests[claim.request_id] = Request(claim, ends, ends + DAY_MS, claim.input_tokens)
        for holder in (claim.key_id, "team"):
            self._take(holder, Limit.REQUESTS, MINUTE_MS)
            self._take(holder, Limit.INPUT_TOKENS, claim.input_tokens * MINUTE_MS)
        return Granted(now_ms=self.now_ms, levels=self._levels(claim))

    def _admit_again(self, known: Request, claim: Claim) -> Decision:
        more = _hold(claim) - _hold(known.claim)
        if claim.spend and more > 0:
            spend = msgspec.structs.replace(claim.spend, hold_micros=more)
            refusal = self._broke(msgspec.structs.replace(claim, spend=spend))
            if refusal is not None:
                return refusal
            known.claim = claim
        return Granted(now_ms=self.now_ms, levels=self._levels(claim))

    def release(self, request_id: str, prompt_tokens: int, output_tokens: int) -> None:
        request = self.requests.get(request_id)
        if request is None:
            return
        request.flying = False
        for holder in (request.claim.key_id, "team"):
            more = prompt_tokens - request.prompt_tokens
            self._take(holder, Limit.INPUT_TOKENS, more * MINUTE_MS)
            more = output_tokens - request.output_tokens
            self._take(holder, Limit.OUTPUT_TOKENS, more * MINUTE_MS)
        request.prompt_tokens, request.output_tokens = prompt_tokens, output_tokens

    def settle(self, state: AccountState, settled: list[Ended]) -> None:
        if self.state is None or state.version >= self.state.version:
            self.state = state
        for each in settled:
            self.release(each.request_id, each.prompt_tokens, each.output_tokens)
            self.requests.pop(each.request_id, None)

    def late(self, after_ms: int) -> set[str]:
        self.sweep()
        return {
            request_id
            for request_id, request in self.requests.items()
            if request.flies_until_ms <= self.now_ms - after_ms
        }

    @property
    def held(self) -> int:
        return sum(_hold(request.claim) for request in self.requests.values())

    def flying(self, key_id: str | None = None) -> int:
        return sum(
            request.flying and key_id in (None, request.claim.key_id)
            for request in self.requests.values()
        )

    def sweep(self) -> None:
        for request_id, request in list(self.requests.items()):
            request.flying = request.flying and request.flies_until_ms > self.now_ms
            if request.kept_until_ms <= self.now_ms:
                del self.requests[request_id]

    def _take(self, holder: str, kind: Limit, amount: int) -> None:
        limit = self.limit(holder, kind)
        if limit is not None:
            level = self.levels[holder, kind] - amount
            self.levels[holder, kind] = min(limit * MINUTE_MS, level)

    def _levels(self, claim: Claim) -> tuple[int, ...]:
        found: list[int] = []
        for name in (claim.key_id, "team"):
            for kind in KINDS:
                limit = self.limit(name, kind)
                found += (-1, 0) if limit is None else (limit, self.levels[name, kind])
        return tuple(found)

    def _broke(self, claim: Claim) -> Unknown | Exhausted | Capped | None:
        spend = claim.spend
        if spend is None or spend.hold_micros == 0:
            return None
        if self.state is None:
            return Unknown()
        here = make_state(self.now_ms)
        spent = {
            Period.MONTHLY: self.state.month_spent_micros * (here.month == self.state.month),
            Period.DAILY: self.state.day_spent_micros * (here.day == self.state.day),
        }
        caps = {Period.MONTHLY: spend.monthly_cap_micros, Period.DAILY: spend.daily_cap_micros}
        levels = self._levels(claim)
        if spend.prepaid and self.state.balance_micros < self.held + spend.hold_micros:
            return Exhausted(
                now_ms=self.now_ms,
                levels=levels,
                balance_micros=self.state.balance_micros,
                held_micros=self.held,
            )
        for period, cap in caps.items():
            if cap is not None and spent[period] + self.held + spend.hold_micros > cap:
                return Capped(
                    now_ms=self.now_ms,
                    levels=levels,
                    period=period,
                    cap_micros=cap,
                    spent_micros=spent[period],
                    held_micros=self.held,
                )
        return None

    def _limited(self, claim: Claim) -> RateLimited | None:
        waits: list[tuple[int, Holder, Limit, int]] = []
        for holder, name in ((Holder.KEY, claim.key_id), (Holder.TEAM, "team")):
            for kind in KINDS:
                limit = self.limit(name, kind)
                if limit is None:
                    continue
                need = max(1, min(claim.input_tokens, limit)) if kind is KINDS[1] else 1
                missing = need * MINUTE_MS - self.levels[name, kind]
                if missing > 0:
                    waits.append(
                        (-(-missing // limit) if limit else MINUTE_MS, holder, kind, limit)
                    )
            most = self.limits[name].max_concurrent
            if most is not None and self.flying(None if name == "team" else name) >= most:
                waits.append((1000, holder, Limit.CONCURRENCY, most))
        if not waits:
            return None
        wait_ms, holder, kind, limit = max(waits, key=lambda wait: wait[0])
        return RateLimited(
            now_ms=self.now_ms,
            levels=self._levels(claim),
            holder=holder,
            kind=kind,
            limit=limit,
            wait_ms=wait_ms,
        )


def _hold(claim: Claim) -> int:
    return claim.spend.hold_micros if claim.spend else 0
