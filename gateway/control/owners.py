"""Which of a team's keys a report is about."""

from __future__ import annotations

from uuid import UUID

from gateway.models import ApiKey, Team


def key_ids(team: Team, key_id: UUID | None, owner: str | None) -> tuple[UUID, ...] | None:
    """Return the keys that both the id and the owner's name allow; None: neither was given."""
    if owner is None:
        return None if key_id is None else (key_id,)
    owned = ApiKey.objects.filter(team=team, owner=owner)
    if key_id is not None:
        owned = owned.filter(pk=key_id)
    return tuple(owned.values_list("pk", flat=True))
