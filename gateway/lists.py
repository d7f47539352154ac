"""Lists in OpenAI's envelope."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def listed(shown: Sequence[dict[str, Any]], *, has_more: bool) -> dict[str, Any]:
    """Return a page of objects, each of which has an `id` (contracts 8, 9 and 10)."""
    return {
        "object": "list",
        "data": shown,
        "first_id": shown[0]["id"] if shown else None,
        "last_id": shown[-1]["id"] if shown else None,
        "has_more": has_more,
    }
