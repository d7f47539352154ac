"""Numbers, flags and orders of query strings."""

from __future__ import annotations

import pytest

from gateway.http.query import boolean, integer, newest_first
from inference.errors import TandemError


def test_it_reads_a_whole_number_within_its_bounds() -> None:
    assert integer({"limit": "5"}, "limit", 20, at_least=1, at_most=100) == 5
    assert integer({"after": "-1"}, "after", 0, at_least=-1, at_most=9) == -1
    assert integer({}, "limit", 20, at_least=1, at_most=100) == 20


@pytest.mark.parametrize("limit", ["0", "-1", "101", "1.5", "", "many", "9" * 5000, "٣"])
def test_it_refuses_numbers_that_are_none_or_out_of_bounds(limit: str) -> None:
    with pytest.raises(TandemError, match="limit: Input should be an integer from 1 to 100") as bad:
        integer({"limit": limit}, "limit", 20, at_least=1, at_most=100)
    assert bad.value.param == "limit"


def test_it_lists_the_newest_first_unless_told() -> None:
    assert newest_first({}) is True
    assert newest_first({"order": "desc"}) is True
    assert newest_first({"order": "asc"}) is False
    with pytest.raises(TandemError, match="order: "):
        newest_first({"order": "random"})


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("True", True), ("1", True), ("false", False), ("0", False)]
)
def test_it_reads_flags(text: str, value: bool) -> None:
    assert boolean({"stream": text}, "stream") is value
    assert boolean({}, "stream") is False


def test_it_refuses_flags_that_are_none() -> None:
    with pytest.raises(TandemError, match="stream: Input should be true or false"):
        boolean({"stream": "maybe"}, "stream")
