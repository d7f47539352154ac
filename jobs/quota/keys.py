"""The names of what is kept in Redis of one team."""

from __future__ import annotations

import re

# In the order of `lua/team.lua`.
_NAMES = ("holders", "claims", "flights", "late")
_TEAM_ID = re.compile(r":quota:\{(\d+)\}:")


class QuotaKeys:
    """The keys of teams. The braces keep a team's in one slot of a cluster, as scripts demand."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def team(self, team_id: int) -> list[str]:
        """The keys that every script names."""
        root = f"{self._prefix}:quota:{{{team_id}}}"
        return [f"{root}:{name}" for name in _NAMES]

    @property
    def every_team(self) -> str:
        """A pattern for one key of each team of which anything is kept."""
        return f"{self._prefix}:quota:*:{_NAMES[0]}"

    @staticmethod
    def team_id(key: bytes) -> int | None:
        """Return whose key it is, if it is any team's."""
        match = _TEAM_ID.search(key.decode())
        return int(match[1]) if match else None
