"""Times as sference's clients read them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import overload


@overload
def iso(when: datetime) -> str: ...
@overload
def iso(when: None) -> None: ...
def iso(when: datetime | None) -> str | None:
    """Return a time in ISO 8601, in UTC."""
    return None if when is None else when.astimezone(UTC).isoformat().replace("+00:00", "Z")
