"""What watchers are told: parts, each a piece of JSON under its name."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

Parts = dict[str, bytes]
"""By name. What is behind a slash tells parts of one kind apart: `engine/…`, `minute/…`."""

NEEDS = {
    "batch": "jobs.view_batch",
    "deadlines": "jobs.view_batch",
    "usage": "jobs.view_ledgerentry",
    "balances": "jobs.view_ledgerentry",
}
"""The permission that one must have to be told a kind of part; the others are for all operators."""

_GONE = b"null"

encode = msgspec.json.Encoder().encode


def changes(before: Parts, now: Parts) -> Parts:
    """Return the parts that are new or have changed; those that are gone are null."""
    changed = {name: value for name, value in now.items() if before.get(name) != value}
    return changed | {name: _GONE for name in before if name not in now}


def visible(parts: Parts, permissions: Collection[str]) -> Parts:
    """Return the parts that somebody with these permissions may be told."""
    hidden = {kind for kind, permission in NEEDS.items() if permission not in permissions}
    return {name: value for name, value in parts.items() if name.partition("/")[0] not in hidden}


def message(parts: Parts, at_s: float, *, whole: bool) -> str:
    """Return what is sent. `whole`: these are all parts, and whatever was told before is void."""
    said: dict[str, Any] = {"at_s": round(at_s, 1), "whole": whole}
    said["parts"] = {name: msgspec.Raw(value) for name, value in parts.items()}
    return encode(said).decode()
