"""Fair shares of an engine's places. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Mapping


def share(places: int, running: Mapping[int, int]) -> dict[int, int]:
    """Return how many of the places each team gets, of those that get any.

    `running` says of each team that wants places how many it has already. Place after place goes
    to the team that has the fewest then, and of several to the one that stands first: no team could
    have more without one that has no more than it having less (max-min fairness).
    """
    shares: dict[int, int] = {}
    waiting = [(has, order, team) for order, (team, has) in enumerate(running.items())]
    heapq.heapify(waiting)
    for _ in range(places if waiting else 0):
        has, order, team = waiting[0]
        shares[team] = shares.get(team, 0) + 1
        heapq.heapreplace(waiting, (has + 1, order, team))
    return shares
