"""Computes the ledger's sums anew, from its entries alone, and says what is kept that differs.

It shares no code with `jobs.ledger` but the price of tokens, and believes nothing that is stored
twice: entries must be numbered without a gap and each balance follow from the one before, a usage
entry must cost what its tokens cost and what the audit trail says, and accounts and usage by day
must equal the entries' sums.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, date
from typing import Any

from django.db import connection, transaction
from django.db.models import Sum

from inference.events import Usage
from inference.request import Lane
from jobs.models import Account, LedgerEntry, Price, UsageDay
from jobs.pricing import PriceVersion, cost_micros

_ROWS_AT_ONCE = 2_000
_TOKENS = ("input_tokens", "cached_tokens", "cache_written_tokens", "output_tokens")
_SUMS = ("requests", *_TOKENS, "cost_micros")
_DAY = ("day", "model", "lane")
_ENTRY = (
    *("number", "kind", "amount_micros", "balance_after_micros", "created_at"),
    *("model", "lane", "price_id", *_TOKENS),
)
_Row = dict[str, Any]
_Days = dict[tuple[date, str, str], Counter[str]]


class Recount:
    """A recount of one team's ledger, or of everybody's. `entries` counts them."""

    def __init__(self, team_id: int | None = None) -> None:
        self._team_id = team_id
        self._prices: dict[int, PriceVersion] = {}
        self.entries = 0

    def findings(self) -> Iterator[str]:
        """Yield what is wrong, one line for each.

        All of it is seen as of one moment, whatever is posted meanwhile: call it outside of any
        transaction, and read on to the end.
        """
        with transaction.atomic(durable=True):
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            versions = Price.objects.values(*PriceVersion.__struct_fields__)
            self._prices = {version["id"]: PriceVersion(**version) for version in versions}
            for team_id in self._teams():
                for finding in self._team(team_id):
                    yield f"team {team_id}: {finding}"

    def _teams(self) -> list[int]:
        if self._team_id is not None:
            return [self._team_id]
        accounts = Account.objects.values_list("team_id")
        return sorted(
            team_id for (team_id,) in accounts.union(UsageDay.objects.values_list("team_id"))
        )

    def _team(self, team_id: int) -> Iterator[str]:
        balance = number = 0
        days: _Days = defaultdict(Counter)
        entries = LedgerEntry.objects.filter(account_id=team_id).order_by("number").values(*_ENTRY)
        for number, entry in enumerate(entries.iterator(_ROWS_AT_ONCE), start=1):
            balance += entry["amount_micros"]
            yield from self._entry(entry, number, balance)
            if entry["kind"] == LedgerEntry.Kind.USAGE:
                day = entry["created_at"].astimezone(UTC).date()
                days[day, entry["model"], entry["lane"]].update(_used(entry))
        self.entries += number
        account = Account.objects.filter(team_id=team_id).first() or Account(team_id=team_id)
        if (account.balance_micros, account.entries) != (balance, number):
            yield (
                f"the account has {account.balance_micros} after {account.entries} entries, but "
                f"{number} entries make {balance}"
            )
        yield from _compare(days, _kept_days(team_id))
        yield from _beside_the_trail(team_id)

    def _entry(self, entry: _Row, number: int, balance: int) -> Iterator[str]:
        if entry["number"] != number:
            yield f"entry {entry['number']} is where entry {number} should be"
        if entry["balance_after_micros"] != balance:
            yield (
                f"entry {number} leaves {entry['balance_after_micros']}, but the entries to it "
                f"make {balance}"
            )
        if entry["kind"] == LedgerEntry.Kind.USAGE:
            cost = self._cost(entry)
            if entry["amount_micros"] != -cost:
                yield f"entry {number} takes {-entry['amount_micros']}, but its tokens cost {cost}"

    def _cost(self, entry: _Row) -> int:
        """Return what an entry should take. One without a price is free, or was waived."""
        price_id = entry["price_id"]
        usage = Usage(
            prompt_tokens=entry["input_tokens"],
            cached_tokens=entry["cached_tokens"],
            cache_written_tokens=entry["cache_written_tokens"],
            output_tokens=entry["output_tokens"],
        )
        return cost_micros(self._prices.get(price_id), usage, Lane(entry["lane"]))


# A row that was sealed before its entry was made has no cost.
_OTHERWISE = """
SELECT record.id, record.cost_micros, -entry.amount_micros
FROM jobs_requestrecord record LEFT JOIN jobs_ledgerentry entry ON entry.request_id = record.id
WHERE record.team_id = %s AND record.cost_micros IS NOT NULL
AND record.cost_micros IS DISTINCT FROM -entry.amount_micros
"""


def _beside_the_trail(team_id: int) -> Iterator[str]:
    """Compare with what the audit trail says, which is sealed."""
    with connection.chunked_cursor() as cursor:
        cursor.execute(_OTHERWISE, [team_id])
        for request_id, cost, taken in cursor:
            entry = "it has no entry" if taken is None else f"its entry takes {taken}"
            yield f"request {request_id} cost {cost} by the audit trail, but {entry}"


def _used(entry: _Row) -> dict[str, int]:
    tokens = {name: entry[name] for name in _TOKENS}
    return tokens | {"requests": 1, "cost_micros": -entry["amount_micros"]}


def _kept_days(team_id: int) -> _Days:
    """Return the usage by day. Entries do not say which key they are of."""
    kept = UsageDay.objects.filter(team_id=team_id).order_by().values(*_DAY)
    sums = kept.annotate(**{f"sum_{name}": Sum(name) for name in _SUMS})
    return {
        (row["day"], row["model"], row["lane"]): Counter(
            {name: int(row[f"sum_{name}"]) for name in _SUMS}
        )
        for row in sums
    }


def _compare(counted: _Days, kept: _Days) -> Iterator[str]:
    for key in sorted(counted.keys() | kept.keys()):
        ours, theirs = counted.get(key, Counter()), kept.get(key, Counter())
        for name in _SUMS:
            if ours[name] != theirs[name]:
                day, model, lane = key
                yield (
                    f"usage on {day} of {model}, {lane}: {name} is {theirs[name]}, but the "
                    f"entries make {ours[name]}"
                )
