"""The model that a request names, and what its reader must know of it."""

from __future__ import annotations

from gateway.dialects.context import ParseContext
from gateway.keys import Principal
from inference.catalogue import Catalogue, ModelEntry
from inference.errors import ErrorCode, TandemError
from inference.request import Lane, Owner


def find_model(catalogue: Catalogue, principal: Principal, name: str) -> ModelEntry:
    """Return the catalogue's entry. Raises MODEL_NOT_FOUND or PERMISSION."""
    entry = catalogue.find(name)
    if entry is None:
        raise TandemError(ErrorCode.MODEL_NOT_FOUND, f"model '{name}' not found", param="model")
    if not principal.may_use(entry.id):
        raise TandemError(
            ErrorCode.PERMISSION, f"this API key may not use the model '{entry.id}'", param="model"
        )
    return entry


def parse_context(
    entry: ModelEntry,
    principal: Principal,
    *,
    request_id: str,
    deadline_s: float,
    lane: Lane,
    cache_salt: str,
) -> ParseContext:
    """Return what a body that this key sends to this model does not say."""
    return ParseContext(
        request_id=request_id,
        model=entry.id,
        owner=Owner(team_id=principal.team_id, key_id=principal.key_id),
        deadline_s=deadline_s,
        lane=lane,
        cache_salt=cache_salt,
        context_tokens=entry.context_tokens,
        vision=entry.vision,
        images_without_vision=entry.images_without_vision,
        reasoning=entry.reasoning,
    )
