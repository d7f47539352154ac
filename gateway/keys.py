"""API keys: how one is made, stored, found, revoked, and seen by the hot path.

A key is `sk-tandem-` and 32 random bytes in URL-safe Base64. Only its SHA-256 is stored: with that
much randomness a slow hash would add nothing but latency.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import uuid
from collections.abc import Sequence
from datetime import datetime

import msgspec
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from gateway.models import ApiKey, Limited, Scope, Team, default_scopes
from gateway.nudges import nudge_on_commit
from inference.errors import ErrorCode, TandemError
from inference.models import Model
from inference.transport.nudge import Topic
from jobs.quota.claims import Limits

KEY_START = "sk-tandem-"
_PREFIX_LENGTH = len(KEY_START) + 6
_SECRET_BYTES = 32
_LENGTH = len(KEY_START) + len(secrets.token_urlsafe(_SECRET_BYTES))
_NAME_LENGTH = 200
_KEY = re.compile(re.escape(KEY_START) + r"[A-Za-z0-9_-]+")


def without_keys(text: str) -> str:
    """Return a text in which no key can be read, for the log: people paste them everywhere."""
    return _KEY.sub(f"{KEY_START}…", text)


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """Who makes a request: a key that was not revoked, its team, and what both may do.

    `allowed_models` holds catalogue ids in lower case; empty means every model. Caps are in
    micro-units of the currency, None for none.
    """

    key_id: str
    key_name: str
    team_id: int
    team_name: str
    scopes: frozenset[str] = frozenset(Scope.values)
    allowed_models: frozenset[str] = frozenset()
    expires_at_s: float | None = None
    key_limits: Limits = Limits()
    team_limits: Limits = Limits()
    prepaid: bool = False
    daily_spend_cap_micros: int | None = None
    monthly_spend_cap_micros: int | None = None
    zero_data_retention: bool = False

    def may_use(self, model: str) -> bool:
        """Whether the key may call the model of this catalogue id."""
        return not self.allowed_models or model.lower() in self.allowed_models


def is_key(text: str) -> bool:
    """Say whether a text has the form of a key."""
    return len(text) == _LENGTH and _KEY.fullmatch(text) is not None


def digest(plaintext: str) -> bytes:
    """Return what is stored of a key."""
    return hashlib.sha256(plaintext.encode("utf-8", "surrogatepass")).digest()


def give_secret(key: ApiKey) -> str:
    """Give an unsaved key its secret and return it: the only time that anyone sees it."""
    plaintext = KEY_START + secrets.token_urlsafe(_SECRET_BYTES)
    key.prefix = plaintext[:_PREFIX_LENGTH]
    key.digest = digest(plaintext)
    return plaintext


def issue(key: ApiKey) -> str:
    """Check and store a new key of a team that exists, and return the key's text.

    Raises `TandemError` (INVALID_REQUEST) naming the field that is wrong: a name that is empty or
    too long, an unknown scope or none, a model that is not in the catalogue, a past expiry.
    """
    key.name = _checked("name", key.name)
    key.owner = _checked("owner", key.owner, at_least=0)
    key.scopes = _checked_scopes(key.scopes)
    key.allowed_models = _catalogue_ids(key.allowed_models)
    if key.expires_at is not None and key.expires_at <= timezone.now():
        raise TandemError(ErrorCode.INVALID_REQUEST, "expires_at: must lie in the future")
    plaintext = give_secret(key)
    with transaction.atomic():
        key.save()
        nudge_on_commit(Topic.KEYS)
    return plaintext


def mint(
    name: str,
    team: str = "default",
    *,
    owner: str = "",
    scopes: Sequence[str] | None = None,
    allowed_models: Sequence[str] = (),
    expires_at: datetime | None = None,
) -> str:
    """Store a new key of a team, which is made if it does not exist, and return the key's text.

    `scopes` None gives the default ones, no `allowed_models` every model. Raises like `issue`.
    """
    key = ApiKey(
        name=name,
        owner=owner,
        scopes=default_scopes() if scopes is None else list(scopes),
        allowed_models=list(allowed_models),
        expires_at=expires_at,
    )
    with transaction.atomic():
        key.team, _ = Team.objects.get_or_create(name=_checked("team", team))
        return issue(key)


def list_keys() -> QuerySet[ApiKey]:
    """Return every key with its team, newest first, revoked ones included."""
    return ApiKey.objects.select_related("team")


def find_live_key(plaintext: str) -> ApiKey:
    """Return the key with this text, and its team, by one look into the index of digests.

    Raises `TandemError` (AUTHENTICATION) if there is none, if it was revoked or has expired.
    """
    key = list_keys().filter(digest=digest(plaintext), revoked_at__isnull=True).first()
    if key is None:
        raise TandemError(ErrorCode.AUTHENTICATION, "invalid x-api-key")
    if key.expires_at is not None and key.expires_at <= timezone.now():
        raise TandemError(ErrorCode.AUTHENTICATION, "this API key has expired")
    return key


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
    """Read every key that was not revoked from the database, by its digest."""
    keys = ApiKey.objects.filter(revoked_at__isnull=True).select_related("team")
    return {bytes(key.digest): _principal(key) for key in keys.iterator()}


def find_principal(key_id: uuid.UUID) -> Principal | None:
    """Read who a key belongs to from the database; None if there is no such key any more.

    A key that was revoked is found too: what it was used for until then goes on.
    """
    key = ApiKey.objects.filter(id=key_id).select_related("team").first()
    return _principal(key) if key is not None else None


def _principal(key: ApiKey) -> Principal:
    team = key.team
    return Principal(
        key_id=str(key.id),
        key_name=key.name,
        team_id=team.id,
        team_name=team.name,
        scopes=frozenset(key.scopes),
        allowed_models=frozenset(model.lower() for model in key.allowed_models),
        expires_at_s=key.expires_at.timestamp() if key.expires_at else None,
        key_limits=_limits(key),
        team_limits=_limits(team),
        prepaid=team.prepaid,
        daily_spend_cap_micros=team.daily_spend_cap_micros,
        monthly_spend_cap_micros=team.monthly_spend_cap_micros,
        zero_data_retention=team.zero_data_retention,
    )


def _limits(owner: Limited) -> Limits:
    return Limits(
        requests_per_minute=owner.requests_per_minute,
        input_tokens_per_minute=owner.input_tokens_per_minute,
        output_tokens_per_minute=owner.output_tokens_per_minute,
        max_concurrent=owner.max_concurrent,
    )


def _checked(field: str, value: str, at_least: int = 1) -> str:
    value = value.strip()
    if at_least <= len(value) <= _NAME_LENGTH:
        return value
    bounds = f"{at_least} to" if at_least else "at most"
    raise TandemError(
        ErrorCode.INVALID_REQUEST, f"{field}: must have {bounds} {_NAME_LENGTH} characters"
    )


def _checked_scopes(scopes: Sequence[str]) -> list[str]:
    if unknown := [scope for scope in scopes if scope not in Scope.values]:
        raise TandemError(
            ErrorCode.INVALID_REQUEST,
            f"scopes: {unknown[0]!r} is none of {', '.join(Scope.values)}",
        )
    if not scopes:
        raise TandemError(ErrorCode.INVALID_REQUEST, "scopes: a key needs at least one")
    return [scope for scope in Scope.values if scope in scopes]


def _catalogue_ids(names: Sequence[str]) -> list[str]:
    """Return the ids as the catalogue spells them."""
    if not names:
        return []
    known = {model.lower(): model for model in Model.objects.values_list("id", flat=True)}
    if unknown := [name for name in names if name.lower() not in known]:
        raise TandemError(
            ErrorCode.INVALID_REQUEST, f"allowed_models: {unknown[0]!r} is not in the catalogue"
        )
    return sorted({known[name.lower()] for name in names})


def _refers_to(reference: str) -> Q:
    condition = Q(name=reference) | Q(prefix=reference) | Q(digest=digest(reference))
    try:
        return condition | Q(id=uuid.UUID(reference))
    except ValueError:
        return condition
