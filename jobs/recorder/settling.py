"""Settles requests: posts what they cost, and finds out what their teams may spend now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from jobs import ledger
from jobs.ledger import AccountState
from jobs.pricing import load_prices
from jobs.quota.claims import Ended
from jobs.recorder import merge
from jobs.recorder.rows import Row


class Settlement(msgspec.Struct, frozen=True, kw_only=True):
    """What the quota must be told once the transaction is committed."""

    team_id: int
    state: AccountState
    requests: list[Ended]


def settle(settled: Sequence[Row], now: datetime) -> None:
    """Settle these rows, and post what they cost."""
    if not settled:
        return
    prices = load_prices()
    charges = [charge for row in settled if (charge := merge.charge(row, prices))]
    costs = ledger.charge(charges, now)
    for row in settled:
        row.settled_at = row.settled_at or now
        row.cost_micros = costs.get(row.id)


def settlements(known: Iterable[Row], now: datetime) -> list[Settlement]:
    """Return what to tell of those of these requests that are settled."""
    by_team: dict[int, list[Ended]] = defaultdict(list)
    for row in known:
        if row.settled_at is not None and row.team_id and row.key_id is not None:
            ended = Ended(
                request_id=row.id,
                prompt_tokens=row.input_tokens,
                output_tokens=row.output_tokens,
                settled=True,
            )
            by_team[row.team_id].append(ended)
    if not by_team:
        return []
    states = ledger.read_states(list(by_team), now)
    return [
        Settlement(team_id=team_id, state=states[team_id], requests=requests)
        for team_id, requests in by_team.items()
    ]
