"""Lists as CSV files, however long: rows are read in chunks, no faster than the client takes them.

Each chunk is a query of its own that goes on, along the index that orders the list, where the one
before ended: nothing is counted, no cursor is kept, and no transaction lasts.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from io import StringIO
from typing import Any, NamedTuple

from django.db.models import F, OrderBy, Q, QuerySet
from django.http import HttpRequest, StreamingHttpResponse
from django.utils import timezone

from gateway.admin.download import download
from jobs.usage_csv import safe_cell

ROWS_AT_ONCE = 2_000


class _Key(NamedTuple):
    """A column that orders a list."""

    name: str
    descending: bool


def csv_answer(
    request: HttpRequest, rows: QuerySet[Any], columns: Sequence[str], name: str
) -> StreamingHttpResponse:
    """Answer with all of the rows, in their order. Their last order column must be unique."""
    file_name = f"{name}-{timezone.now():%Y-%m-%d}.csv"
    return download(request, csv_pieces(rows, columns), file_name, "text/csv; charset=utf-8")


def csv_pieces(rows: QuerySet[Any], columns: Sequence[str]) -> Iterator[bytes]:
    """Yield the heading and then the rows, chunk by chunk (RFC 4180)."""
    keys = [_key(part, rows) for part in rows.query.order_by]
    names = [*columns, *(key.name for key in keys if key.name not in columns)]
    wanted = rows.values_list(*names)
    yield _encode([columns])
    last: Sequence[Any] = ()
    while True:
        chunk = list((wanted.filter(_after(keys, last)) if last else wanted)[:ROWS_AT_ONCE])
        if chunk:
            yield _encode([row[: len(columns)] for row in chunk])
        if len(chunk) < ROWS_AT_ONCE:
            return
        last = [chunk[-1][names.index(key.name)] for key in keys]


def _encode(rows: Sequence[Sequence[Any]]) -> bytes:
    text = StringIO()
    csv.writer(text).writerows([safe_cell(value) for value in row] for row in rows)
    return text.getvalue().encode()


def _key(part: Any, rows: QuerySet[Any]) -> _Key:
    if isinstance(part, OrderBy):
        assert isinstance(part.expression, F)
        return _Key(part.expression.name, part.descending)  # type: ignore[attr-defined]
    name = part.removeprefix("-")
    return _Key(rows.model._meta.pk.name if name == "pk" else name, part.startswith("-"))


def _after(keys: Sequence[_Key], last: Sequence[Any]) -> Q:
    """Return what comes after a row, so that the database finds its place in the index."""
    (first, *others), (value, *values) = keys, last
    step = "lt" if first.descending else "gt"
    beyond = Q(**{f"{first.name}__{step}": value})
    if not others:
        return beyond
    return Q(**{f"{first.name}__{step}e": value}) & (beyond | _after(others, values))
