"""Which part of a list a query string asks for (OpenAI's way): `limit`, `order`, `after`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gateway.http.query import integer, newest_first

MAX_LIMIT = 100


class Page(NamedTuple):
    """So many, in this order, from behind the one with the id `after`."""

    limit: int
    newest_first: bool = True
    after: str | None = None


def decode_page(query: Mapping[str, str], default_limit: int) -> Page:
    """Read the parameters of a query string. Raises INVALID_REQUEST naming a wrong one."""
    limit = integer(query, "limit", default_limit, at_least=1, at_most=MAX_LIMIT)
    return Page(limit, newest_first(query), query.get("after"))
