"""What is asked of a team's quota, and what it answers. Amounts are whole micro-units.

What scripts read and write travels as arrays, which they take apart in half the time of maps: the
order of these fields is part of `lua/`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

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


class Left(NamedTuple):
    """What a bucket has: to be taken at once, of how much, and how long until it is full again."""

    remaining: int
    limit: int
    full_in_ms: int


# A bucket's limit and level are here in `levels`: those of the key, and so much further the team's.
_PLACES = {Limit.REQUESTS: 0, Limit.INPUT_TOKENS: 2, Limit.OUTPUT_TOKENS: 4}
_TEAM = 6


class _Decided(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What every answer says. `now_ms` is Redis' clock, in milliseconds of Unix time.

    `levels` has the limit (below 0: none) and the level of every bucket, in sixty-thousandths: how
    full it is, which may be in debt.
    """

    now_ms: int = 0
    levels: tuple[int, ...] = ()

    def least(self, kind: Limit) -> Left | None:
        """Return what is left where the least is, of key and team; None without a limit."""
        if not self.levels:
            return None
        place = _PLACES[kind]
        key_limit, key_level = self.levels[place : place + 2]
        limit, level = self.levels[place + _TEAM : place + _TEAM + 2]
        if key_limit < 0:
            return _left(limit, level) if limit >= 0 else None
        of_key = _left(key_limit, key_level)
        return min(of_key, _left(limit, level)) if limit >= 0 else of_key


def _left(limit: int, level: int) -> Left:
    full_in_ms = -((level - limit * _UNIT) // limit) if limit else 0
    return Left(max(0, level // _UNIT), limit, full_in_ms)


class Granted(_Decided, frozen=True, kw_only=True, array_like=True, tag="granted"):
    """The request is let in."""


class RateLimited(_Decided, frozen=True, kw_only=True, array_like=True, tag="limited"):
    """A limit refuses the request: of several, the one that takes longest to let it pass."""

    holder: Holder
    kind: Limit
    limit: int
    wait_ms: int


class Exhausted(_Decided, frozen=True, kw_only=True, array_like=True, tag="exhausted"):
    """The balance does not cover the request's hold beside the holds of others."""

    balance_micros: int
    held_micros: int


class Period(StrEnum):
    """What a spend cap is for, in UTC."""

    DAILY = "daily"
    MONTHLY = "monthly"


class Capped(_Decided, frozen=True, kw_only=True, array_like=True, tag="capped"):
    """A spend cap does not cover the request's hold beside what is spent and held."""

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
