"""How an account's state is written for the scripts."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from jobs.amounts import MAX_MICROS
from jobs.quota.scripts import encode_state
from tests.unit.jobs.quota.kit import make_state


@pytest.mark.parametrize(
    ("day", "day_ends", "month_ends"),
    [
        ("2026-08-07", (2026, 8, 8), (2026, 9, 1)),
        ("2026-12-31", (2027, 1, 1), (2027, 1, 1)),
        ("2028-02-28", (2028, 2, 29), (2028, 3, 1)),
    ],
)
def test_a_day_and_a_month_are_told_by_their_ends(
    day: str, day_ends: tuple[int, int, int], month_ends: tuple[int, int, int]
) -> None:
    state = msgspec.msgpack.decode(encode_state(make_state(day=day, month=day[:7])))
    assert state["day_end"] == datetime(*day_ends, tzinfo=UTC).timestamp() * 1000
    assert state["month_end"] == datetime(*month_ends, tzinfo=UTC).timestamp() * 1000


@pytest.mark.parametrize("sign", [1, -1])
def test_amounts_stay_within_what_lua_counts_exactly(sign: int) -> None:
    state = msgspec.msgpack.decode(encode_state(make_state(balance_micros=sign * 2**62)))
    assert state["balance"] == sign * MAX_MICROS
