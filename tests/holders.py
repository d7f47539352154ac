"""What the quota's scripts keep of a team or a key, as `jobs/quota/lua/team.lua` packs it."""

from __future__ import annotations

import struct

_FIELDS = ("at", "known", "flying", "held")
_VERSION = 11


def read_holder(kept: bytes) -> dict[str, float]:
    """Return some of it; `version` is below 0 while no account is known."""
    values = struct.unpack("<18d", kept)
    return dict(zip(_FIELDS, values, strict=False)) | {"version": values[_VERSION]}
