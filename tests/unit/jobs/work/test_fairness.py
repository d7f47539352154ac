"""Places among teams."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from jobs.work.fairness import share


def test_teams_get_the_same_if_they_have_the_same() -> None:
    assert share(6, {7: 0, 8: 0, 9: 0}) == {7: 2, 8: 2, 9: 2}


def test_who_has_less_comes_first() -> None:
    assert share(5, {7: 4, 8: 0, 9: 1}) == {8: 3, 9: 2}
    assert share(7, {7: 3, 8: 0, 9: 1}) == {7: 1, 8: 4, 9: 2}


def test_of_equals_the_first_one_gets_the_odd_place() -> None:
    assert share(1, {9: 2, 8: 2}) == {9: 1}
    assert share(3, {9: 2, 8: 2}) == {9: 2, 8: 1}


def test_without_teams_or_places_nobody_gets_any() -> None:
    assert share(4, {}) == {}
    assert share(0, {7: 0}) == {}


@given(st.integers(0, 50), st.dictionaries(st.integers(1, 9), st.integers(0, 30), min_size=1))
def test_nobody_who_got_a_place_has_more_than_any_other_by_more_than_one(
    places: int, running: dict[int, int]
) -> None:
    shares = share(places, running)
    assert sum(shares.values()) == places
    after = Counter(running) + Counter(shares)
    assert all(after[team] <= after[other] + 1 for team in shares for other in running)
