"""Lets requests in by their key's and team's limits, spend caps and balance."""

from __future__ import annotations

import asyncio
import logging
import time

import msgspec
from redis.exceptions import ResponseError

from gateway.accounting.accounts import Accounts, ReadState
from gateway.accounting.refusals import refused
from gateway.accounting.releases import Releases
from inference.errors import ErrorCode, TandemError
from inference.transport.connection import RETRY_AFTER_S, Unreachable
from inference.transport.courier import Courier
from jobs.quota.claims import Capped, Claim, Decision, Ended, Exhausted, Granted, Unknown
from jobs.quota.client import Quota
from jobs.quota.scripts import decode_decision

logger = logging.getLogger(__name__)

# Before a caller is refused for want of money the database is asked, for each team so often.
_RECHECK_S = 1.0
_BYTES_PER_TOKEN = 4


class Limiter:
    """Asks the quota for each request. One for each gateway process, on its event loop.

    `fail_open` decides where nothing can be decided: requests are let in at once, or wait for
    Redis for `wait_s` and are refused then. `read_state` reads a team's account, in a thread.
    """

    def __init__(
        self,
        courier: Courier,
        prefix: str,
        *,
        fail_open: bool,
        read_state: ReadState,
        wait_s: float,
    ) -> None:
        self._quota = Quota(courier, prefix)
        self._accounts = Accounts(self._quota, read_state)
        self._fail_open = fail_open
        self._wait_s = wait_s
        self._releases = Releases(self._quota.end)
        self._abandoned: set[asyncio.Future[bytes]] = set()

    async def admit(self, claim: Claim) -> Granted:
        """Let a request in; `release` it when it has ended. Without limits nobody is asked.

        Raises `LimitError` (RATE_LIMITED, SPEND_CAP, BALANCE_EXHAUSTED), or `TandemError`
        (UNAVAILABLE). A caller that is cancelled meanwhile leaves nothing behind.
        """
        if not claim.binding:
            return Granted()
        try:
            decision = await self._decide(claim)
        except (*Unreachable, ResponseError) as error:
            if not self._fail_open:
                # It may have been granted: only the answer was lost.
                self.withdraw(claim)
                raise _unavailable() from error
            logger.warning("a request is let in although its limits cannot be read: %s", error)
            return Granted()
        match decision:
            case Granted():
                return decision
            case Unknown():
                raise _unavailable()
            case _:
                raise refused(decision, claim)

    def release(self, claim: Claim, prompt_tokens: int, output_tokens: int) -> None:
        """Say, in the background, that a request has ended and what it used. Once is enough."""
        if claim.binding:
            ended = Ended(
                request_id=claim.request_id,
                prompt_tokens=prompt_tokens,
                output_tokens=output_tokens,
            )
            self._releases.put(claim.team_id, ended)

    def withdraw(self, claim: Claim) -> None:
        """Take back, in the background, a claim of a request that is not begun after all."""
        if claim.binding:
            self._releases.put(claim.team_id, Ended(request_id=claim.request_id, settled=True))

    async def stop(self) -> None:
        """Wait until all is said that can be."""
        if self._abandoned:
            await asyncio.wait(self._abandoned)
        await self._releases.stop()

    async def _decide(self, claim: Claim) -> Decision:
        decision = await self._ask(claim)
        match decision:
            case Unknown():
                again = await self._accounts.load(claim.team_id)
            case Exhausted() | Capped():
                # Redis may not have been told of a top-up.
                again = await self._accounts.load(claim.team_id, max_age_s=_RECHECK_S)
            case _:
                again = False
        if again:
            decision = await self._ask(claim)
        if isinstance(decision, Unknown) and self._fail_open:
            logger.warning("a request of team %d is let in on an unknown balance", claim.team_id)
            decision = await self._ask(msgspec.structs.replace(claim, spend=None))
        return decision

    async def _ask(self, claim: Claim) -> Decision:
        give_up_s = time.monotonic() + self._wait_s
        try:
            while True:
                # What has ended makes room first.
                self._releases.flush()
                asking = self._quota.ask(claim)
                try:
                    return decode_decision(await asyncio.shield(asking))
                except Unreachable:
                    if self._fail_open or time.monotonic() >= give_up_s:
                        raise
                await asyncio.sleep(RETRY_AFTER_S)
        except asyncio.CancelledError:
            self._abandon(claim, asking)
            raise

    def _abandon(self, claim: Claim, asking: asyncio.Future[bytes]) -> None:
        """Take back a claim that may be granted to somebody who has left."""
        self._abandoned.add(asking)
        asking.add_done_callback(self._abandoned.discard)
        asking.add_done_callback(lambda _: self.withdraw(claim))


def estimate_tokens(body_bytes: int, context_tokens: int) -> int:
    """Return how many tokens a request's prompt is taken to have until the engine has counted."""
    return min(body_bytes // _BYTES_PER_TOKEN, context_tokens)


def _unavailable() -> TandemError:
    return TandemError(
        ErrorCode.UNAVAILABLE,
        "the team's limits and balance cannot be read right now",
        retry_after_s=1,
    )
