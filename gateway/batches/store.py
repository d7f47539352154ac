"""Finds and lists a team's batches; everything here reads the database."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from inference.errors import ErrorCode, TandemError
from jobs.models import Batch
from jobs.paging import beyond


class Listing(NamedTuple):
    """Which of a team's batches of one form: the newest, or those next to one of them.

    `after` is followed by older ones, `before` follows newer ones.
    """

    team_id: int
    form: str
    limit: int
    after: UUID | None = None
    before: UUID | None = None


def find(batch_id: UUID | None, team_id: int, form: str, name: str) -> Batch:
    """Return a team's batch. Raises NOT_FOUND, whether it never was or is another team's."""
    known = Batch.objects.filter(team_id=team_id, form=form)
    found = known.filter(id=batch_id).first() if batch_id is not None else None
    if found is None:
        raise TandemError(ErrorCode.NOT_FOUND, f"there is no batch '{name}'", param="batch_id")
    return found


def page(listing: Listing) -> tuple[list[Batch], bool]:
    """Return batches, newest first, and whether there are more in the direction that was asked."""
    found = Batch.objects.filter(team_id=listing.team_id, form=listing.form)
    if listing.before is not None:
        nearest = beyond(found, listing.before, newer=True).order_by("created_at", "id")
        batches = list(nearest[: listing.limit + 1])
        return batches[: listing.limit][::-1], len(batches) > listing.limit
    if listing.after is not None:
        found = beyond(found, listing.after, newer=False)
    batches = list(found.order_by("-created_at", "-id")[: listing.limit + 1])
    return batches[: listing.limit], len(batches) > listing.limit


def delete(batch_id: UUID) -> None:
    """Delete a batch that has ended, and its rows; audit trail and ledger keep theirs."""
    Batch.objects.filter(id=batch_id).delete()
