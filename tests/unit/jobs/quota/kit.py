"""What the tests of the quota share: claims, accounts, and a quota with a clock of its own."""

from __future__ import annotations

import secrets
import uuid
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
import redis

from inference.transport.connection import connect
from inference.transport.courier import Courier
from jobs.ledger import AccountState
from jobs.quota.claims import Claim, Decision, Ended, Granted, Holder, Limit, Refusal, Spend
from jobs.quota.client import Quota, Settler
from jobs.quota.keys import QuotaKeys
from jobs.quota.scripts import decode_decision
from tests.holders import read_holder

TEAM = 7
KEY = "key-one"
MINUTE_MS = 60_000
DAY_MS = 86_400_000
KINDS = (Limit.REQUESTS, Limit.INPUT_TOKENS, Limit.OUTPUT_TOKENS)
BUCKETS = [(holder, kind) for holder in Holder for kind in KINDS]
# In the middle of a day, three days before a month's end; so far ahead that nothing expires by the
# server's clock while a test runs.
NOON = round(datetime(2126, 8, 28, 12, tzinfo=UTC).timestamp() * 1000)


def make_claim(**changes: Any) -> Claim:
    fields: dict[str, Any] = {
        "request_id": str(uuid.uuid4()),
        "team_id": TEAM,
        "key_id": KEY,
        "input_tokens": 10,
        "lease_ms": MINUTE_MS,
    }
    return Claim(**fields | changes)


class Bucket(NamedTuple):
    """A token bucket. `level` is in sixty-thousandths."""

    holder: Holder
    kind: Limit
    limit: int
    level: int

    @property
    def remaining(self) -> int:
        return max(0, self.level // MINUTE_MS)


def buckets(decision: Granted | Refusal) -> list[Bucket]:
    """The buckets that an answer tells of."""
    pairs = zip(decision.levels[::2], decision.levels[1::2], strict=True)
    told = zip(BUCKETS, pairs, strict=False)
    return [Bucket(*which, limit, level) for which, (limit, level) in told if limit >= 0]


def prepaid(hold_micros: int) -> Spend:
    return Spend(hold_micros=hold_micros, prepaid=True)


def settled(claim: Claim, prompt_tokens: int = 0, output_tokens: int = 0) -> Ended:
    return Ended(
        request_id=claim.request_id,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        settled=True,
    )


def make_state(now_ms: int = NOON, **changes: Any) -> AccountState:
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    state = AccountState(
        version=1,
        balance_micros=1000,
        day=f"{now:%Y-%m-%d}",
        day_spent_micros=0,
        month=f"{now:%Y-%m}",
        month_spent_micros=0,
    )
    return msgspec.structs.replace(state, **changes)


class OneByOne(Quota):
    """A quota that is asked, and told of one end at a time."""

    async def admit(self, claim: Claim) -> Decision:
        return decode_decision(await self.ask(claim))

    async def release(self, claim: Claim, prompt_tokens: int, output_tokens: int) -> None:
        """End a request."""
        ended = Ended(
            request_id=claim.request_id, prompt_tokens=prompt_tokens, output_tokens=output_tokens
        )
        await self.end(claim.team_id, [ended])

    async def withdraw(self, claim: Claim) -> None:
        """End a request that never began."""
        await self.end(claim.team_id, [settled(claim)])


class QuotaKit:
    """A quota of its own on the tests' Redis, whose clock stands still until it is moved."""

    def __init__(self, redis_url: str) -> None:
        self.prefix = f"quota-{secrets.token_hex(4)}"
        self.sync = redis.Redis.from_url(redis_url)
        self.client = connect(redis_url)
        clock = f"{{0, redis.call('GET', '{self.prefix}:now') * 1000}}"
        self.quota = OneByOne(Courier(self.client), self.prefix, clock=clock)
        self.settler = Settler(self.sync, self.prefix, clock=clock)
        self.keys = QuotaKeys(self.prefix).team(TEAM)
        self.set_time(NOON)

    def set_time(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.sync.set(f"{self.prefix}:now", now_ms)

    def advance(self, milliseconds: int) -> None:
        self.set_time(self.now_ms + milliseconds)

    def holders(self) -> dict[str, dict[str, float]]:
        """What is kept of the team and of each key."""
        state: Any = self.sync.hgetall(self.keys[0])
        return {name.decode(): read_holder(kept) for name, kept in state.items()}

    def requests(self) -> set[str]:
        """The requests that are known."""
        known: Any = self.sync.hkeys(self.keys[1])
        return {request_id.decode() for request_id in known}

    def kept(self) -> set[str]:
        """What is kept of teams, by the last part of its key."""
        keys = self.sync.scan_iter(f"{self.prefix}:quota:*")
        return {key.decode().split("}:")[1] for key in keys}

    async def close(self) -> None:
        for key in self.sync.scan_iter(f"{self.prefix}:*"):
            self.sync.delete(key)
        self.sync.close()
        await self.client.aclose()
