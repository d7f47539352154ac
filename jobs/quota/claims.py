"""What is asked of a team's quota, and what it answers. Amounts are whole micro-units.

What scripts read and write travels as arrays, which they take apart in half the time of maps: the
order of these fields is part of `lua/`.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

# A bucket counts in sixty-thousandths (see `lua/team.lua`), which must be exact too.
MAX_PER_MINUTE = 10**11
_UNIT = 60_000


class Limits(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Limits of a team or of a key; None means none. A larger one than `MAX_PER_MINUTE` is it."""

    requests_per_minute: int | None = None
    input_tokens_per_minute: int | None = None
    output_tokens_per_minute: int | None = None
    max_concurrent: int | None = None


NO_LIMITS = Limits()


class Spend(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What a request may cost at most, and what its team may spend.

    `prepaid`: the balance must cover the hold, and the holds of all that are not settled yet.
    """

    hold_micros: int
    prepaid: bool
    daily_cap_micros: int | None = None
    monthly_cap_micros: int | None = None

    @property
    def binding(self) -> bool:
        """Whether there is anything to be refused for: what costs nothing is never."""
        capped = self.daily_cap_micros is not None or self.monthly_cap_micros is not None
        return self.hold_micros > 0 and (self.prepaid or capped)


class Claim(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One request that wants to be let in.

    `input_tokens` is an estimate, put right at the end. `lease_ms` is how long it can be in flight
    at most: after that its concurrency is given back although nobody said that it ended. Of what is
    not `limited` only money is held: it neither counts against limits nor is refused by them.
    """

    request_id: str
    team_id: int
    key_id: str
    input_tokens: int
    lease_ms: int
    team: Limits = NO_LIMITS
    key: Limits = NO_LIMITS
    spend: Spend | None = None
    limited: bool = True

    @property
    def binding(self) -> bool:
        """Whether anything at all can refuse it. If not, nothing needs to be asked."""
        limited = self.team != NO_LIMITS or self.key != NO_LIMITS
        return limited or (self.spend is not None and self.spend.binding)


class Holder(StrEnum):
    """Whose limit it is."""

    KEY = "key"
    TEAM = "team"


class Limit(StrEnum):
    """What a limit counts. All but the last are token buckets, refilled within a minute."""

    REQUESTS = "requests"
    INPUT_TOKENS = "input_tokens"
    OUTPUT_TOKENS = "output_tokens"
    CONCURRENCY = "concurrency"


class Bucket(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """How full a token bucket is. `level` is in sixty-thousandths and may be in debt."""

    holder: Holder
    kind: Limit
    limit: int
    level: int

    @property
    def remaining(self) -> int:
        """What may still be taken at once."""
        return max(0, self.level // _UNIT)

    @property
    def full_in_ms(self) -> int:
        """How long it takes until the bucket is full, if nothing more is taken."""
        missing = self.limit * _UNIT - self.level
        return -(-missing // self.limit) if self.limit else 0


class Granted(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="granted"):
    """The request is let in. `now_ms` is Redis' clock, in milliseconds of Unix time."""

    now_ms: int = 0
    buckets: tuple[Bucket, ...] = ()


class RateLimited(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="limited"):
    """A limit refuses the request: of several, the one that takes longest to let it pass."""

    now_ms: int
    buckets: tuple[Bucket, ...]
    holder: Holder
    kind: Limit
    limit: int
    wait_ms: int


class Exhausted(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="exhausted"):
    """The balance does not cover the request's hold beside the holds of others."""

    now_ms: int
    buckets: tuple[Bucket, ...]
    balance_micros: int
    held_micros: int


class Period(StrEnum):
    """What a spend cap is for, in UTC."""

    DAILY = "daily"
    MONTHLY = "monthly"


class Capped(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="capped"):
    """A spend cap does not cover the request's hold beside what is spent and held."""

    now_ms: int
    buckets: tuple[Bucket, ...]
    period: Period
    cap_micros: int
    spent_micros: int
    held_micros: int


class Unknown(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="unknown"):
    """The team's account must be loaded first."""


Refusal = RateLimited | Exhausted | Capped
Decision = Granted | Refusal | Unknown


class Ended(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A request whose answer has ended, with what it used as far as whoever says so knows.

    What it holds of its team's money stays held until it is `settled`: its entry in the ledger is
    made, or none will be made. Only what differs from what was said before counts.
    """

    request_id: str
    prompt_tokens: int = 0
    output_tokens: int = 0
    settled: bool = False
