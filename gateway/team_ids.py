"""The ids of teams, as people, pages and commands write them."""

from __future__ import annotations

# Every number of that length fits the database's widest integer.
_DIGITS = 18


def parse_team_id(text: str) -> int | None:
    """Return the id that a text is; None for what can be none, whether or not there is the team."""
    return int(text) if text.isdecimal() and len(text) <= _DIGITS else None
