"""What is asked of the trail and the ledger: lists, sums, and one request in whole.

Nothing here counts or sorts all that there is: every list is a walk along an index that stops
early, and sums are made of days that were added up before.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from datetime import date, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from django.db import connection
from django.db.models import Max, Model, QuerySet, Sum

from inference.errors import ErrorCode, TandemError
from inference.fold import KeptPart
from jobs.models import (
    Account,
    KeyUse,
    LedgerEntry,
    Price,
    RequestBody,
    RequestRecord,
    UsageDay,
)
from jobs.models.audit import NEWEST_OF_TEAM
from jobs.pricing import PriceVersion

COUNTED_AT_MOST = 10_000
"""Lists are counted and paged through so far and no further."""

# Entries are numbered as they are written, and visible when they are committed.
_SKEW = timedelta(minutes=1)

_decode_answer = msgspec.msgpack.Decoder(tuple[KeptPart, ...]).decode

# A walk from each model to the next along the index `request_team_model`.
_MODELS_OF_TEAM = """
WITH RECURSIVE used(model) AS (
    (SELECT model FROM jobs_requestrecord WHERE team_id = %(team)s ORDER BY model LIMIT 1)
    UNION ALL
    SELECT (
        SELECT model FROM jobs_requestrecord
        WHERE team_id = %(team)s AND model > used.model ORDER BY model LIMIT 1
    )
    FROM used WHERE model IS NOT NULL
)
SELECT model FROM used WHERE model IS NOT NULL
"""


class ActivityFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which of a team's requests are wanted. None: whatever it is.

    `created_after` is the first moment that counts, `created_before` the first that does not.
    """

    team_id: int
    type: str | None = None
    status: str | None = None
    model: str | None = None
    key_ids: tuple[UUID, ...] | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None


class RequestPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of requests; `total` is exact up to `COUNTED_AT_MOST`, and then capped."""

    items: list[RequestRecord]
    total: int
    total_is_capped: bool


class UsageFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which of a team's days, in UTC and both included, and of its keys and models. None: all."""

    team_id: int
    first: date
    last: date
    model: str | None = None
    key_ids: tuple[UUID, ...] | None = None


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Requests that an engine took, their tokens and what they cost.

    `input_tokens` are all of the prompts, `cached_tokens` and `cache_written_tokens` parts of it.
    """

    requests: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    cache_written_tokens: int = 0
    output_tokens: int = 0
    cost_micros: int = 0

    @property
    def total_tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens


class DayUsage(Usage, frozen=True, kw_only=True):
    """The usage of one day."""

    day: date


class ModelUsage(Usage, frozen=True, kw_only=True):
    """The usage of one model in one lane."""

    model: str
    lane: str


class KeptBody(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of what a request said, as it was sent, and of its answer. None: nothing."""

    body: bytes | None = None
    answer: tuple[KeptPart, ...] | None = None


_COUNTS = Usage.__struct_fields__


def find_requests(wanted: ActivityFilter) -> QuerySet[RequestRecord]:
    """Return the requests that are wanted, newest first."""
    rows = RequestRecord.objects.filter(team_id=wanted.team_id).order_by(*NEWEST_OF_TEAM)
    for field in ("type", "status", "model"):
        if value := getattr(wanted, field):
            rows = rows.filter(**{field: value})
    if wanted.key_ids is not None:
        rows = rows.filter(key_id__in=wanted.key_ids)
    if wanted.created_after is not None:
        rows = rows.filter(created_at__gte=wanted.created_after)
    if wanted.created_before is not None:
        rows = rows.filter(created_at__lt=wanted.created_before)
    return rows


def page_of_requests(wanted: ActivityFilter, page: int, page_size: int) -> RequestPage:
    """Return a page, counted from 1.

    Raises `TandemError` (INVALID_REQUEST) for a page beyond what is counted.
    """
    start = (page - 1) * page_size
    if start >= COUNTED_AT_MOST:
        raise TandemError(
            ErrorCode.INVALID_REQUEST,
            f"page: only the newest {COUNTED_AT_MOST:,} requests can be paged through; set "
            "created_before to see older ones",
        )
    rows = find_requests(wanted)
    items = list(rows[start : start + page_size])
    if len(items) < page_size and (items or page == 1):
        return RequestPage(items=items, total=start + len(items), total_is_capped=False)
    total = capped_count(rows)
    return RequestPage(
        items=items, total=min(total, COUNTED_AT_MOST), total_is_capped=total > COUNTED_AT_MOST
    )


def capped_count(rows: QuerySet[Model] | QuerySet[RequestRecord]) -> int:
    """Count so many rows that one can tell whether they are more than `COUNTED_AT_MOST`.

    In their order, so that it is the walk that lists them: any rows would do, but PostgreSQL may
    then look for them through all that there are.
    """
    return rows.values("pk")[: COUNTED_AT_MOST + 1].count()


def find_request(team_id: int, request_id: UUID) -> RequestRecord | None:
    """Return a team's own request, or None."""
    return RequestRecord.objects.filter(team_id=team_id, pk=request_id).first()


def models_of(team_id: int) -> list[str]:
    """Return the models that the team's requests on record went to, in alphabetical order."""
    with connection.cursor() as cursor:
        cursor.execute(_MODELS_OF_TEAM, {"team": team_id})
        return [model for (model,) in cursor.fetchall()]


def kept_body(record_id: UUID) -> KeptBody:
    """Return what is kept of a request's body and answer."""
    row = RequestBody.objects.filter(pk=record_id).first()
    if row is None:
        return KeptBody()
    answer = None if row.answer is None else _decode_answer(zlib.decompress(row.answer))
    return KeptBody(
        body=None if row.body is None else zlib.decompress(row.body),
        answer=answer,
    )


def billed_price(request_id: UUID) -> PriceVersion | None:
    """Return the version of the price that a request was billed by; None: it was not, or free."""
    versions = Price.objects.filter(ledgerentry__request_id=request_id)
    version = versions.values(*PriceVersion.__struct_fields__).first()
    return version and PriceVersion(**version)


def usage_by_day(wanted: UsageFilter) -> list[DayUsage]:
    """Return every day that is wanted, oldest first, those without usage too."""
    found = {row["day"]: DayUsage(**row) for row in _sums(wanted, "day")}
    length = (wanted.last - wanted.first).days + 1
    days = (wanted.first + timedelta(days=number) for number in range(length))
    return [found.get(day) or DayUsage(day=day) for day in days]


def usage_by_model(wanted: UsageFilter) -> list[ModelUsage]:
    """Return the usage of each model and lane, those that cost and did most first."""
    found = [ModelUsage(**row) for row in _sums(wanted, "model", "lane")]
    return sorted(found, key=lambda one: (-one.cost_micros, -one.total_tokens))


def total_usage(parts: Iterable[Usage]) -> Usage:
    """Add up."""
    listed = list(parts)
    return Usage(**{name: sum(getattr(part, name) for part in listed) for name in _COUNTS})


def prices_in_force(models: Iterable[str], at: datetime) -> dict[str, PriceVersion]:
    """Return for each model that has a price the version in force at that moment."""
    versions = (
        Price.objects.filter(model__in=set(models), effective_from__lte=at)
        .order_by("model", "-effective_from")
        .distinct("model")
        .values(*PriceVersion.__struct_fields__)
    )
    return {version["model"]: PriceVersion(**version) for version in versions}


def balance_micros(team_id: int) -> int:
    """Return a team's balance; one that never had an entry has 0."""
    balances = Account.objects.filter(pk=team_id).values_list("balance_micros", flat=True)
    return balances.first() or 0


def entries_of(team_id: int, limit: int, before: int | None = None) -> list[LedgerEntry]:
    """Return up to `limit` of a team's entries, newest first, from below the number `before`."""
    rows = LedgerEntry.objects.filter(account_id=team_id).order_by("-number")
    if before is not None:
        rows = rows.filter(number__lt=before)
    return list(rows[:limit])


def entry_ids_between(since: datetime | None, until: datetime | None) -> tuple[int, int]:
    """Return the first id of a ledger entry made at `since` or later, and that at `until`.

    All teams' entries have ids in the order of time, give or take what transactions take; a minute
    is allowed for that on both sides. Found by halves: a walk along the ids reads no more than it
    shows, where their moments have no index that would order them.
    """
    end = (LedgerEntry.objects.aggregate(last=Max("pk"))["last"] or 0) + 1
    first = 0 if since is None else _first_id(since - _SKEW, end)
    return first, end if until is None else _first_id(until + _SKEW, end)


def _first_id(moment: datetime, end: int) -> int:
    """Return the least id of an entry that was made then or later, or `end`."""
    low, high = 0, end
    while low < high:
        middle = (low + high) // 2
        row = LedgerEntry.objects.filter(pk__gte=middle).order_by("pk").values("pk", "created_at")
        entry = row.first()
        if entry is None or entry["created_at"] >= moment:
            high = middle
        else:
            low = entry["pk"] + 1
    return low


def last_used(key_ids: Iterable[UUID]) -> dict[UUID, datetime]:
    """Return when each of these keys was last used; keys that never were are left out."""
    rows = KeyUse.objects.filter(pk__in=list(key_ids))
    return dict(rows.values_list("key_id", "last_used_at"))


def _sums(wanted: UsageFilter, *group: str) -> list[dict[str, Any]]:
    """Add up what is wanted for each value of the group, in its order."""
    rows = UsageDay.objects.filter(team_id=wanted.team_id, day__range=(wanted.first, wanted.last))
    if wanted.model is not None:
        rows = rows.filter(model=wanted.model)
    if wanted.key_ids is not None:
        rows = rows.filter(key_id__in=wanted.key_ids)
    # Under names of their own: the table has columns with theirs.
    sums = {f"sum_{name}": Sum(name) for name in _COUNTS}
    found = rows.values(*group).annotate(**sums).order_by(*group)
    return [{name.removeprefix("sum_"): value for name, value in row.items()} for row in found]
