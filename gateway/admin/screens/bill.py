"""What one request used, what that cost by which price, and where the ledger says so."""

from __future__ import annotations

from typing import NamedTuple

from django.db.models import Q

from gateway.admin.money import units
from gateway.admin.screens.found import Found
from inference.request import Lane
from jobs.models import LedgerEntry, RequestRecord
from jobs.pricing import PriceVersion
from jobs.reports import billed_price

_FULL_PERMILLE = 1000
# Of a price's fields, by the kind of tokens that they are for.
_RATES = {
    "input": "input_micros_per_mtok",
    "input from the cache": "cached_input_micros_per_mtok",
    "input written to the cache": "cache_write_micros_per_mtok",
    "output": "output_micros_per_mtok",
}


class Line(NamedTuple):
    """Tokens of one kind, and what a million of them costs in units; empty: no price of its own."""

    name: str
    tokens: int
    rate: str


class Posting(NamedTuple):
    """An entry of the ledger, its amounts in units."""

    entry: LedgerEntry
    amount: str
    balance_after: str


class Bill(NamedTuple):
    """The whole of it. `factor` is what the lane makes of the price; empty: nothing."""

    lines: list[Line]
    price: PriceVersion | None
    factor: str
    cost: str
    postings: list[Posting]


def bill_of(found: Found) -> Bill:
    """Return the bill of a request, be it billed or not."""
    record, price = found.record, billed_price(found.id)
    return Bill(
        lines=_lines(record, price) if record else [],
        price=price,
        factor=_factor(record, price) if record and price else "",
        cost=units(record.cost_micros if record else None),
        postings=[
            Posting(entry, units(entry.amount_micros), units(entry.balance_after_micros))
            for entry in _entries(found)
        ],
    )


def _entries(found: Found) -> list[LedgerEntry]:
    refund = Q(account_id=found.team_id, kind=LedgerEntry.Kind.REFUND, reference=str(found.id))
    return list(LedgerEntry.objects.filter(Q(request_id=found.id) | refund).order_by("number"))


def tokens_of(record: RequestRecord) -> list[tuple[str, int]]:
    """Return what a request used, by kind; of the output, thinking is told once more."""
    plain = record.input_tokens - record.cached_tokens - record.cache_written_tokens
    return [
        ("input", plain),
        ("input from the cache", record.cached_tokens),
        ("input written to the cache", record.cache_written_tokens),
        ("output", record.output_tokens),
        ("of it thinking", record.thinking_tokens),
    ]


def _lines(record: RequestRecord, price: PriceVersion | None) -> list[Line]:
    return [
        Line(kind, count, units(getattr(price, _RATES[kind])) if price and kind in _RATES else "")
        for kind, count in tokens_of(record)
    ]


def _factor(record: RequestRecord, price: PriceVersion) -> str:
    permille = price.permille(Lane(record.lane))
    return "" if permille == _FULL_PERMILLE else f"{permille / _FULL_PERMILLE:g}"
