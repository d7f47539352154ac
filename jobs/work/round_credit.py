"""Holds money for answers of several rounds, before each: see `inference.mcp.credit`."""

from __future__ import annotations

import asyncio
import logging

from django.db import Error, connection
from django.utils import timezone
from redis.exceptions import ResponseError

from inference.engine.options import transport_options
from inference.mcp.credit import NextRound
from inference.transport.connection import Unreachable, connect_sync
from jobs.pricing import cost_micros, load_prices, reserve_micros
from jobs.quota.holds import Wanted
from jobs.work.credit import Credit

logger = logging.getLogger(__name__)


class RoundCredit:
    """One for each engine worker. It asks in threads: between two rounds a tool has run anyway."""

    def __init__(self) -> None:
        options = transport_options()
        self._credit = Credit(connect_sync(options.redis_url), options.prefix)

    async def covers(self, a_round: NextRound) -> bool:
        """Hold what the answer will have cost at most after a round, as `Credit` says.

        The price is that of this moment: one that was changed meanwhile counts from here on.
        """
        return await asyncio.to_thread(self._covers, a_round)

    def _covers(self, a_round: NextRound) -> bool:
        request = a_round.request
        if request.owner is None:
            return True
        try:
            wanted = Wanted(
                request_id=request.id,
                key_id=request.owner.key_id,
                hold_micros=_most_micros(a_round),
            )
            return self._credit.covers(request.owner.team_id, wanted)
        except (Error, ResponseError, *Unreachable) as error:
            logger.warning("an answer ends early: what it may cost cannot be held: %s", error)
            return False
        finally:
            connection.close()


def _most_micros(a_round: NextRound) -> int:
    request = a_round.request
    price = load_prices().at(request.model, timezone.now())
    used = cost_micros(price, a_round.used, request.lane)
    longest, context = a_round.prompt_tokens, a_round.context_tokens
    return used + reserve_micros(price, longest, request.sampling.max_tokens, context, request.lane)
