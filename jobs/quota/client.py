"""The two ends of the quota: gateways ask it, the recorder settles with it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import redis
import redis.asyncio
from redis.exceptions import NoScriptError

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

    def __init__(
        self, client: redis.asyncio.Redis, prefix: str, *, clock: str = REDIS_CLOCK
    ) -> None:
        self._client = client
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

    async def end(self, ended: Sequence[Ended]) -> list[bool]:
        """End requests: give back concurrency, put estimates right, take what was put out.

        Returns for each whether it was still known; of one that was ended before, only what the
        figures differ by counts. They are told in one pipeline: the script only if it is missing.
        """
        try:
            return await self._end(ended)
        except NoScriptError:
            await self._client.script_load(self._release.script)
            return await self._end(ended)

    async def _end(self, ended: Sequence[Ended]) -> list[bool]:
        pipeline = self._client.pipeline(transaction=False)
        for each in ended:
            keys = self._keys(each.claim)
            arguments = [each.prompt_tokens, each.output_tokens, 0 if each.began else 1]
            pipeline.evalsha(
                self._release.sha, len(keys), *keys, each.claim.request_id, *arguments
            )
        return [answer == 1 for answer in await pipeline.execute()]

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
