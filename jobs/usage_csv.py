"""Usage as CSV: one line for each usage entry of the ledger, as it was billed.

Of the ledger and not of the trail, because it never changes and is never pruned. Names and outcome
are the trail's, and empty for requests that retention has removed.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from io import TextIOBase
from itertools import islice
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from jobs.models import LedgerEntry, RequestRecord

COLUMNS = (
    *("request_id", "billed_at", "team_id", "model", "lane"),
    *("input_tokens", "cached_tokens", "cache_written_tokens", "output_tokens"),
    *("cost_micros", "price_id", "entry"),
    *("team", "key_id", "key", "status", "ending"),
)
_OF_LEDGER = (
    *("request_id", "created_at", "account_id", "model", "lane"),
    *("input_tokens", "cached_tokens", "cache_written_tokens", "output_tokens"),
    *("amount_micros", "price_id", "number"),
)
_OF_TRAIL = ("team_name", "key_id", "key_name", "status", "ending")
_UNKNOWN = ("",) * len(_OF_TRAIL)
_AMOUNT = _OF_LEDGER.index("amount_micros")
_ROWS_AT_ONCE = 2_000
# What spreadsheets take for the beginning of a formula, after blanks too.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def usage_entries(first: date, last: date, team_id: int | None = None) -> QuerySet[LedgerEntry]:
    """Return the usage entries of these days, in UTC and both included."""
    entries = LedgerEntry.objects.filter(
        kind=LedgerEntry.Kind.USAGE,
        created_at__gte=_midnight(first),
        created_at__lt=_midnight(last + timedelta(days=1)),
    )
    return entries if team_id is None else entries.filter(account_id=team_id)


def write_csv(entries: QuerySet[LedgerEntry], file: TextIOBase) -> Iterator[int]:
    """Write the entries in the order they were made; yield the number of each chunk's lines.

    RFC 4180, in constant memory: a cursor of the server's hands the rows over.
    """
    writer = csv.writer(file)
    writer.writerow(COLUMNS)
    with transaction.atomic():
        rows = entries.order_by("created_at", "id").values_list(*_OF_LEDGER)
        stream = rows.iterator(_ROWS_AT_ONCE)
        while chunk := list(islice(stream, _ROWS_AT_ONCE)):
            told = _trail_of([row[0] for row in chunk])
            for row in chunk:
                writer.writerow([*_billed(row), *map(safe_cell, told.get(row[0], _UNKNOWN))])
            yield len(chunk)


def _trail_of(request_ids: list[UUID]) -> dict[UUID, tuple[Any, ...]]:
    rows = RequestRecord.objects.filter(pk__in=request_ids).values_list("pk", *_OF_TRAIL)
    return {request_id: tuple(told) for request_id, *told in rows}


def _billed(row: tuple[Any, ...]) -> Iterator[object]:
    for place, value in enumerate(row):
        # An entry of usage takes from the balance.
        yield -value if place == _AMOUNT else safe_cell(value)


def safe_cell(value: object) -> object:
    """Return a cell that no spreadsheet computes: text that would is led by an apostrophe."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, str) and value.lstrip(" ").startswith(_FORMULA):
        return f"'{value}"
    return value


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
