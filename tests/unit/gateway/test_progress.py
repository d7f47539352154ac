"""The pace of a batch; who may watch one is in tests/acceptance."""

from __future__ import annotations

import pytest

from gateway.progress import Pace


def test_nothing_is_known_at_first() -> None:
    assert Pace().time_left_s(0, 0, 10) is None


def test_the_rest_takes_as_long_as_the_pace_says() -> None:
    pace = Pace()
    pace.time_left_s(0, 0, 100)
    assert pace.time_left_s(2, 20, 100) == 8


def test_a_pause_makes_it_longer_and_not_endless() -> None:
    pace = Pace()
    pace.time_left_s(0, 0, 100)
    pace.time_left_s(1, 10, 100)
    assert pace.time_left_s(2, 10, 100) == pytest.approx(90 / 8)


def test_a_batch_that_has_not_moved_has_no_forecast() -> None:
    pace = Pace()
    pace.time_left_s(0, 5, 100)
    assert pace.time_left_s(1, 5, 100) is None
