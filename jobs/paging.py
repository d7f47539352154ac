"""Pages of rows that are listed in the order of their creation, found by the row before."""

from __future__ import annotations

from typing import TypeVar
from uuid import UUID

from django.db.models import Model, Q, QuerySet

M = TypeVar("M", bound=Model)


def beyond(rows: QuerySet[M], cursor: UUID, *, newer: bool) -> QuerySet[M]:
    """Narrow rows to those newer, or older, than the one with this id, be it deleted by now or not.

    Clients delete what they list, and ask for what comes after the last one. `rows` have
    `created_at` and an `id` of UUID version 7.
    """
    way = "gt" if newer else "lt"
    moment = rows.filter(pk=cursor).values_list("created_at", flat=True).first()
    if moment is None:
        # Such an id begins with when it was made, in milliseconds.
        return rows.filter(**{f"pk__{way}": cursor})
    same = Q(**{"created_at": moment, f"pk__{way}": cursor})
    return rows.filter(Q(**{f"created_at__{way}": moment}) | same)
