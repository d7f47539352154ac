"""The two ends of the quota: gateways ask it, the recorder settles with it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import redis
import redis.asyncio

from jobs.ledger import AccountState
from jobs.quota.claims import Claim, Decision, Settled
from jobs.quota.keys import QuotaKeys
from jobs.quota.scripts import (
    REDIS_CLOCK,
    decode_decision,
    encode_settled,
    encode_state,
    read_script,
)


class Quota:
    """A gateway's end. Every method is one round trip and raises what the Redis client raises."""

    def __init__(
        self, client: redis.asyncio.Redis, prefix: str, *, clock: str = REDIS_CLOCK
    ) -> None:
        self._prefix = prefix
        self._admit = client.register_script(read_script("admit", clock))
        self._release = client.register_script(read_script("release", clock))
        self._settle = client.register_script(read_script("settle", clock))

    async def admit(self, claim: Claim) -> Decision:
        """Let a request in, or say what refuses it. Asked again, a request is not counted again."""
        answer: bytes = await self._admit(
            keys=self._keys(claim), args=[msgspec.msgpack.encode(claim)]
        )
        return decode_decision(answer)

    async def release(self, claim: Claim, prompt_tokens: int, output_tokens: int) -> bool:
        """End a request: give back its concurrency, and count the tokens that it used.

        Said again, the last word counts. Returns False if it is settled already: then nothing is
        changed. What it holds of its team's money stays held until then.
        """
        known: int = await self._release(
            keys=self._keys(claim), args=[claim.request_id, prompt_tokens, output_tokens, 0]
        )
        return known == 1

    async def withdraw(self, claim: Claim) -> None:
        """End a request that never began, its hold included: nobody is going to settle it."""
        await self._release(keys=self._keys(claim), args=[claim.request_id, 0, 0, 1])

    async def load(self, team_id: int, state: AccountState) -> None:
        """Tell of a team's account, unless a newer state of it is known."""
        await self._settle(
            keys=QuotaKeys(self._prefix, team_id).team,
            args=[encode_state(state), encode_settled(())],
        )

    def _keys(self, claim: Claim) -> list[str]:
        keys = QuotaKeys(self._prefix, claim.team_id)
        return [*keys.team, keys.bucket(claim.key_id)]


class Settler:
    """The end of whoever writes the ledger, for use outside an event loop."""

    def __init__(self, client: redis.Redis, prefix: str, *, clock: str = REDIS_CLOCK) -> None:
        self._prefix = prefix
        self._settle = client.register_script(read_script("settle", clock))

    def settle(self, team_id: int, state: AccountState, requests: Sequence[Settled] = ()) -> None:
        """Tell of a team's account after a commit, and end the requests that are settled in it.

        An older state than the one known is passed over, the requests are ended all the same; doing
        it again is harmless. Raises what the Redis client raises.
        """
        keys = QuotaKeys(self._prefix, team_id)
        self._settle(
            keys=[*keys.team, *(keys.bucket(request.key_id) for request in requests)],
            args=[encode_state(state), encode_settled(requests)],
        )
