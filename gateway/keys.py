"""API keys: how one is made, stored, found, revoked, and seen by the hot path.

A key is `sk-tandem-` and 32 random bytes in URL-safe Base64. Only its SHA-256 is stored: with that
much randomness a slow hash would add nothing but latency.
"""

from __future__ import annotations

import hashlib
import secrets
import uuid

import msgspec
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from gateway.models import ApiKey, Team
from gateway.nudges import nudge_on_commit
from inference.errors import ErrorCode, TandemError
from inference.transport.nudge import Topic

KEY_START = "sk-tandem-"
_PREFIX_LENGTH = len(KEY_START) + 6
_NAME_LENGTH = 200


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """Who makes a request: a live key and its team."""

    key_id: str
    key_name: str
    team_id: int
    team_name: str


def digest(plaintext: str) -> bytes:
    """Return what is stored of a key."""
    return hashlib.sha256(plaintext.encode("utf-8", "surrogatepass")).digest()


def give_secret(key: ApiKey) -> str:
    """Give an unsaved key its secret and return it: the only time that anyone sees it."""
    plaintext = KEY_START + secrets.token_urlsafe(32)
    key.prefix = plaintext[:_PREFIX_LENGTH]
    key.digest = digest(plaintext)
    return plaintext


def mint(name: str, team: str = "default") -> str:
    """Store a new key of a team, which is made if it does not exist, and return the key's text.

    Raises `TandemError` (INVALID_REQUEST) for a name that is empty or too long.
    """
    key = ApiKey(name=_checked("name", name))
    plaintext = give_secret(key)
    with transaction.atomic():
        key.team, _ = Team.objects.get_or_create(name=_checked("team", team))
        key.save()
        nudge_on_commit(Topic.KEYS)
    return plaintext


def list_keys() -> QuerySet[ApiKey]:
    """Return every key with its team, newest first, revoked ones included."""
    return ApiKey.objects.select_related("team")


def find_key(reference: str) -> ApiKey:
    """Return the one key with this id, prefix or name; a whole key's text is taken too.

    Where several match, one that is still live is preferred to revoked ones. Raises `TandemError`:
    NOT_FOUND if there is none, INVALID_REQUEST if it is not clear which one is meant.
    """
    matches = list(list_keys().filter(_refers_to(reference)))
    candidates = [key for key in matches if key.revoked_at is None] or matches
    if not candidates:
        raise TandemError(
            ErrorCode.NOT_FOUND, f"no API key has the id, prefix or name {reference!r}"
        )
    if len(candidates) > 1:
        listed = ", ".join(f"{key.id} ({key.prefix}, {key.name})" for key in candidates)
        raise TandemError(
            ErrorCode.INVALID_REQUEST,
            f"{reference!r} fits {len(candidates)} API keys, name one by its id: {listed}",
        )
    return candidates[0]


def revoke(keys: QuerySet[ApiKey]) -> int:
    """End these keys' lives and return how many were alive until now."""
    with transaction.atomic():
        count = keys.filter(revoked_at__isnull=True).update(revoked_at=timezone.now())
        nudge_on_commit(Topic.KEYS)
    return count


def load_principals() -> dict[bytes, Principal]:
    """Read every live key from the database, by its digest."""
    rows = ApiKey.objects.filter(revoked_at__isnull=True).values_list(
        "digest", "id", "name", "team_id", "team__name"
    )
    return {
        bytes(stored): Principal(
            key_id=str(key_id), key_name=name, team_id=team_id, team_name=team_name
        )
        for stored, key_id, name, team_id, team_name in rows
    }


def _checked(field: str, value: str) -> str:
    value = value.strip()
    if not 1 <= len(value) <= _NAME_LENGTH:
        raise TandemError(
            ErrorCode.INVALID_REQUEST, f"{field}: must have 1 to {_NAME_LENGTH} characters"
        )
    return value


def _refers_to(reference: str) -> Q:
    condition = Q(name=reference) | Q(prefix=reference) | Q(digest=digest(reference))
    try:
        return condition | Q(id=uuid.UUID(reference))
    except ValueError:
        return condition
