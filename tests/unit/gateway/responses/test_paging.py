"""The parameters of lists."""

from __future__ import annotations

import pytest

from gateway.responses.paging import Page, decode_page
from inference.errors import TandemError


def test_it_has_defaults() -> None:
    assert decode_page({}, 20) == Page(20, newest_first=True, after=None)


def test_it_reads_what_is_there() -> None:
    query = {"limit": "5", "order": "asc", "after": "resp_1"}
    assert decode_page(query, 20) == Page(5, newest_first=False, after="resp_1")


@pytest.mark.parametrize("query", [{"limit": "101"}, {"order": "random"}])
def test_it_refuses_what_is_wrong(query: dict[str, str]) -> None:
    with pytest.raises(TandemError, match="Input should be"):
        decode_page(query, 20)
