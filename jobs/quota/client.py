"""The two ends of the quota: gateways ask it, the recorder settles with it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import redis

from inference.transport.courier import Courier
from jobs.ledger import AccountState
from jobs.quota.claims import Claim, Decision, Ended, Settled
from jobs.quota.keys import QuotaKeys
from jobs.quota.scripts import (
    REDIS_CLOCK,
    decode_decision,
    encode_settled,
    encode_state,
    read_script,
)


class Quota:
    """A gateway's end. Every method is one round trip, and raises what the Redis client raises."""

    def __init__(self, courier: Courier, prefix: str, *, clock: str = REDIS_CLOCK) -> None:
        self._courier = courier
        self._prefix = prefix
        self._admit = courier.script(read_script("admit", clock))
        self._release = courier.script(read_script("release", clock))
        self._settle = courier.script(read_script("settle", clock))

    async def admit(self, claim: Claim) -> Decision:
        """Let a request in, or say what refuses it. Asked again, a request is not counted again."""
        answer: bytes = await self._courier.run(
            self._admit, self._keys(claim), [msgspec.msgpack.encode(claim)]
        )
        return decode_decision(answer)

    async def end(self, ended: Sequence[Ended]) -> list[bool]:
        """End requests: give back concurrency, put estimates right, take what was put out.

        Returns for each whether it was still known; of one that was ended before, only what the
        figures differ by counts.
        """
        answers = await asyncio.gather(*(self._end(each) for each in ended))
        return [answer == 1 for answer in answers]

    async def _end(self, ended: Ended) -> int:
        figures = [ended.prompt_tokens, ended.output_tokens, 0 if ended.began else 1]
        answer: int = await self._courier.run(
            self._release, self._keys(ended.claim), [ended.claim.request_id, *figures]
        )
        return answer

    async def load(self, team_id: int, state: AccountState) -> None:
        """Tell of a team's account, unless a newer state of it is known."""
        keys = QuotaKeys(self._prefix, team_id).team
        await self._courier.run(self._settle, keys, [encode_state(state), encode_settled(())])

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
