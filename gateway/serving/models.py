"""The model that a request names, and what its reader must know of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
        server_tools=bool(entry.mcp_servers) and entry.tool_recursion_limit > 0,
        # Each answer of an upstream is asked for with the whole prompt, and billed with it.
        shares_prompt=entry.upstream is None,
    )


def raw_entry(catalogue: Catalogue, obj: Mapping[str, Any]) -> ModelEntry | None:
    """Return the model that a decoded Messages body names, if the body is to travel as it is.

    Where the operator offers tools that run here it is translated instead: they are part of it.
    """
    name = obj.get("model")
    entry = catalogue.find(name) if isinstance(name, str) else None
    if entry is None or entry.backend != "anthropic":
        return None
    return None if entry.mcp_servers and entry.tool_recursion_limit else entry


def raw_parameters(entry: ModelEntry) -> dict[str, Any]:
    """Return the fields that its upstream is sent, whatever the caller said."""
    return entry.upstream_options.get("parameters") or {}
