"""Streams for scripts."""

from __future__ import annotations

import json
from typing import Any


def told(frames: bytes) -> list[dict[str, Any]]:
    """Return the JSON that server-sent events carry."""
    lines = frames.decode().splitlines()
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
