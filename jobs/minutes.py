"""Reads and prunes what requests came to by the minute (see `jobs.models.minutes`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from django.db.models import QuerySet, Sum

from jobs.models import LatencyMinute, RequestMinute

KEPT = timedelta(days=7)
"""How long minutes are kept: they are for looking at what is now, and how it was just before."""

_AT_ONCE = 10_000


class MinuteSums(msgspec.Struct, frozen=True, kw_only=True):
    """A minute's requests of all teams to one model, in one lane, that ended one way."""

    minute: datetime
    lane: str
    model: str
    outcome: str
    requests: int
    input_tokens: int
    output_tokens: int


class MinuteTimes(msgspec.Struct, frozen=True, kw_only=True):
    """A minute's times of one model in one lane, as histograms of `jobs.latency`."""

    minute: datetime
    lane: str
    model: str
    first_token: list[int]
    between_tokens: list[int]


_GROUP = ("minute", "lane", "model", "outcome")
_SUMMED = ("requests", "input_tokens", "output_tokens")


def sums_since(minute: datetime) -> list[MinuteSums]:
    """Return what there is of this minute and of later ones, in order."""
    wanted = RequestMinute.objects.filter(minute__gte=minute).order_by("minute").values(*_GROUP)
    # Under names of their own: the table has columns with theirs.
    found = wanted.annotate(**{f"sum_{name}": Sum(name) for name in _SUMMED})
    return [MinuteSums(**_whole(row)) for row in found]


def times_since(minute: datetime) -> list[MinuteTimes]:
    """Return the times of this minute and of later ones, in order."""
    wanted = LatencyMinute.objects.filter(minute__gte=minute).order_by("minute")
    return [MinuteTimes(**row) for row in wanted.values(*MinuteTimes.__struct_fields__)]


def _whole(row: Mapping[str, Any]) -> dict[str, Any]:
    """Name sums as the columns that they are of; PostgreSQL adds up to numbers of any size."""
    sums = {f"sum_{name}": name for name in _SUMMED}
    return {sums.get(name, name): int(v) if name in sums else v for name, v in row.items()}


def prune(before: datetime) -> Iterator[int]:
    """Remove older minutes, a chunk with each step; yield how many rows it had."""
    yield from _prune(RequestMinute.objects.filter(minute__lt=before))
    yield from _prune(LatencyMinute.objects.filter(minute__lt=before))


def _prune(old: QuerySet[Any]) -> Iterator[int]:
    oldest = old.order_by("minute").values("pk")[:_AT_ONCE]
    while count := old.model.objects.filter(pk__in=oldest).delete()[0]:
        yield count
