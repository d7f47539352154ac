"""Short-lived keys with which pages of the admin call the API in an operator's name.

Such a page calls `/v1` like everybody else: with a key, as a team that pays and is limited. The key
is made when the page first needs it and revoked when the page is left; a page that cannot say that
it is left (a browser that was killed) leaves a key that ends by itself within the hour. It is
listed like any other key: its name says what made it, its owner who did.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from uuid import UUID

from django.utils import timezone

from gateway.keys import issue, revoke
from gateway.models import ApiKey, Scope, Team

LIFETIME = timedelta(hours=1)


class Purpose(StrEnum):
    """What a page needs a key for; the value is the key's name."""

    PLAYGROUND = "Playground session"
    BATCH_UPLOAD = "Batch upload session"


_SCOPES = {Purpose.PLAYGROUND: Scope.INFERENCE, Purpose.BATCH_UPLOAD: Scope.BATCHES}


def open_session(team: Team, purpose: Purpose, operator: str) -> tuple[ApiKey, str]:
    """Make a key that can do what the page does and no more; return it and its text.

    Raises what `gateway.keys.issue` raises.
    """
    key = ApiKey(
        team=team,
        name=purpose.value,
        owner=operator,
        scopes=[_SCOPES[purpose]],
        expires_at=timezone.now() + LIFETIME,
    )
    return key, issue(key)


def close_session(key_id: UUID, operator: str) -> ApiKey | None:
    """Revoke a key that a page of this operator was given; None if there is no such live one."""
    names = [purpose.value for purpose in Purpose]
    found = ApiKey.objects.filter(pk=key_id, owner=operator, name__in=names)
    return found.first() if revoke(found) else None
