"""The names of what is kept in Redis of one team."""

from __future__ import annotations


class QuotaKeys:
    """One team's keys. The braces keep them in one slot of a cluster, as a script demands."""

    def __init__(self, prefix: str, team_id: int) -> None:
        self._root = f"{prefix}:quota:{{{team_id}}}"

    @property
    def team(self) -> list[str]:
        """The keys that every script names first, in the order of `lua/team.lua`."""
        names = ("account", "totals", "requests", "leases", "flights", "bucket")
        return [f"{self._root}:{name}" for name in names]

    def bucket(self, key_id: str) -> str:
        """The token buckets of one API key."""
        return f"{self._root}:bucket:{key_id}"
