"""Credit given or taken by hand: booked in the ledger, and told to every gateway."""

from __future__ import annotations

import logging
from functools import partial

from django.conf import settings
from django.db import transaction

from inference.transport.connection import Unreachable, connect_sync
from jobs import ledger
from jobs.models import LedgerEntry
from jobs.quota.client import Settler

logger = logging.getLogger(__name__)


def top_up(
    team_id: int, amount_micros: int, *, nonce: str, actor: str, description: str
) -> LedgerEntry:
    """Add credit once for each nonce; gateways know of it as soon as it is committed.

    Raises like `jobs.ledger.top_up`.
    """
    with transaction.atomic():
        entry = ledger.top_up(
            team_id, amount_micros, nonce=nonce, actor=actor, description=description
        )
        _tell_on_commit(team_id)
    return entry


def adjust(
    team_id: int, amount_micros: int, *, nonce: str, actor: str, description: str
) -> LedgerEntry:
    """Like `top_up`, but the amount may be negative. Raises like `jobs.ledger.adjust`."""
    with transaction.atomic():
        entry = ledger.adjust(
            team_id, amount_micros, nonce=nonce, actor=actor, description=description
        )
        _tell_on_commit(team_id)
    return entry


def refund(
    request_id: str, amount_micros: int | None, *, actor: str, description: str
) -> LedgerEntry:
    """Give back what a request cost, or a part of it, once. Raises like `jobs.ledger.refund`."""
    with transaction.atomic():
        entry = ledger.refund(request_id, amount_micros, actor=actor, description=description)
        _tell_on_commit(entry.account_id)
    return entry


def _tell_on_commit(team_id: int) -> None:
    transaction.on_commit(partial(_tell, team_id))


def _tell(team_id: int) -> None:
    """Put the balance where gateways look for it; without Redis they read it when they ask next."""
    with connect_sync(settings.REDIS_URL) as client:
        try:
            Settler(client, settings.TANDEM.REDIS_PREFIX).settle(
                team_id, ledger.read_state(team_id)
            )
        except Unreachable as error:
            logger.warning("gateways do not know of team %s's new balance yet: %s", team_id, error)
