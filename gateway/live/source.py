"""What every source of parts is."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from gateway.live.parts import Parts


class Source(Protocol):
    """Looks now and then, and keeps what it saw as parts, and as facts that alerts follow from."""

    name: str
    every_s: float
    parts: Parts

    async def look(self, now: datetime) -> None:
        """Look once. Where it raises (`TandemError`, or what Redis does) all stays as it was."""
