"""The two ends of the quota: gateways ask it, the recorder settles with it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import cast

import msgspec
import redis

from inference.transport.courier import Courier
from jobs.ledger import AccountState
from jobs.quota.claims import Claim, Ended
from jobs.quota.keys import QuotaKeys
from jobs.quota.scripts import REDIS_CLOCK, encode_state, read_script

# So many requests are ended in one step; Redis does nothing else meanwhile.
_STEP = 100
_encode = msgspec.msgpack.Encoder().encode
_NO_STATE = encode_state(None)
_NONE_ENDED = _encode(())


class Quota:
    """A gateway's end. What a method returns raises what the Redis client raises.

    Commands are on their way when a method returns, in the order of the calls.
    """

    def __init__(self, courier: Courier, prefix: str, *, clock: str = REDIS_CLOCK) -> None:
        self._courier = courier
        self._keys = QuotaKeys(prefix)
        self._admit = courier.script(read_script("admit", clock))
        self._settle = courier.script(read_script("settle", clock))

    def ask(self, claim: Claim) -> asyncio.Future[bytes]:
        """Ask to let a request in; for the answer see `decode_decision`.

        Asked again, a request is not counted again; if it may cost more now, it holds more.
        """
        keys = self._keys.team(claim.team_id)
        return self._courier.run(self._admit, keys, [_encode(claim)])

    def end(self, team_id: int, ended: Sequence[Ended]) -> asyncio.Future[None]:
        """End requests: give back concurrency, put estimates right, take what was put out."""
        keys = self._keys.team(team_id)
        return self._courier.run(self._settle, keys, [_NO_STATE, _encode(ended)])

    def load(self, team_id: int, state: AccountState) -> asyncio.Future[None]:
        """Tell of a team's account, unless a newer state of it is known."""
        keys = self._keys.team(team_id)
        return self._courier.run(self._settle, keys, [encode_state(state), _NONE_ENDED])


class Settler:
    """The end of whoever writes the ledger, for use outside an event loop.

    Every method raises what the Redis client raises.
    """

    def __init__(self, client: redis.Redis, prefix: str, *, clock: str = REDIS_CLOCK) -> None:
        self._client = client
        self._keys = QuotaKeys(prefix)
        self._settle = client.register_script(read_script("settle", clock))
        self._tidy = client.register_script(read_script("tidy", clock))

    def settle(self, team_id: int, state: AccountState, requests: Sequence[Ended] = ()) -> None:
        """Tell of a team's account after a commit, and end the requests that are settled in it.

        An older state than the one known is passed over, the requests are ended all the same; doing
        it again is harmless.
        """
        keys = self._keys.team(team_id)
        account = encode_state(state)
        for start in range(0, max(len(requests), 1), _STEP):
            self._settle(keys=keys, args=[account, _encode(requests[start : start + _STEP])])

    def teams(self) -> Iterator[int]:
        """Yield every team of which anything is kept; one may come twice."""
        for key in self._client.scan_iter(match=self._keys.every_team, count=1000):
            team_id = self._keys.team_id(cast("bytes", key))
            if team_id is not None:
                yield team_id

    def late(self, team_id: int, after_s: float) -> list[str]:
        """Return requests that should have ended so long ago, and that nobody has settled.

        Some of them, if there are many. What nothing needs to be known of any more is dropped.
        """
        keys = self._keys.team(team_id)
        late = cast("list[bytes]", self._tidy(keys=keys, args=[round(1000 * after_s)]))
        return [request_id.decode() for request_id in late]
