"""What is an id of a team, and what is none."""

from __future__ import annotations

import pytest

from gateway.team_ids import parse_team_id


def test_an_id_is_a_number() -> None:
    assert parse_team_id("7") == 7
    assert parse_team_id("9" * 18) == 10**18 - 1


@pytest.mark.parametrize("text", ["", "-7", "7.0", "seven", "\u00b2", "9" * 19])
def test_nothing_else_is_one(text: str) -> None:
    assert parse_team_id(text) is None
