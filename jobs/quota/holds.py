"""The engines' end of the quota: what work may cost is held while it runs, as a request's is.

Work is not subject to rate limits: it waits its turn instead.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import redis

from jobs.quota.claims import Claim, Decision, Granted, Spend
from jobs.quota.keys import QuotaKeys
from jobs.quota.scripts import REDIS_CLOCK, decode_decision, read_script

# After so long it is asked whether the work still runs: see `jobs.recorder.sweep`.
_ASK_AFTER_MS = 10 * 60 * 1000
_encode = msgspec.msgpack.Encoder().encode


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What a team may spend, as `jobs.quota.claims.Spend` says it."""

    prepaid: bool = False
    daily_cap_micros: int | None = None
    monthly_cap_micros: int | None = None


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The most that one piece of work may cost."""

    request_id: str
    key_id: str
    hold_micros: int


class Holds:
    """Holds credit for work; `jobs.quota.client.Settler` lets go of it."""

    def __init__(self, client: redis.Redis, prefix: str, *, clock: str = REDIS_CLOCK) -> None:
        self._client = client
        self._keys = QuotaKeys(prefix)
        self._admit = client.register_script(read_script("admit", clock))

    def hold(self, team_id: int, terms: Terms, wanted: Sequence[Wanted]) -> list[Decision]:
        """Hold what each may cost, or say what refuses it: `Exhausted`, `Capped` or `Unknown`.

        What is held already stays held. One round trip; raises what the Redis client raises.
        """
        claims = [_claim(team_id, terms, each) for each in wanted]
        binding = [claim for claim in claims if claim.binding]
        keys = self._keys.team(team_id)
        with self._client.pipeline(transaction=False) as pipeline:
            for claim in binding:
                self._admit(keys=keys, args=[_encode(claim)], client=pipeline)
            answers = pipeline.execute()
        decided = {
            claim.request_id: decode_decision(answer)
            for claim, answer in zip(binding, answers, strict=True)
        }
        return [decided.get(claim.request_id, Granted()) for claim in claims]


def _claim(team_id: int, terms: Terms, wanted: Wanted) -> Claim:
    return Claim(
        request_id=wanted.request_id,
        team_id=team_id,
        key_id=wanted.key_id,
        input_tokens=0,
        lease_ms=_ASK_AFTER_MS,
        limited=False,
        spend=Spend(
            hold_micros=wanted.hold_micros,
            prepaid=terms.prepaid,
            daily_cap_micros=terms.daily_cap_micros,
            monthly_cap_micros=terms.monthly_cap_micros,
        ),
    )
