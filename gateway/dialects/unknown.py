"""Fields of a request that have no effect: how they are told, or refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal
from urllib.parse import quote

from gateway.dialects.validation import invalid
from inference.errors import TandemError

UnknownFields = Literal["ignore", "reject"]

MAX_KEPT_NAMES = 20
"""The trail keeps no more: callers choose the names, and could fill it with them."""

# Proxies and clients take headers of a few thousand bytes.
_SHOWN_NAMES = 20
_SHOWN_CHARS = 40


def ignored_header(ignored: Sequence[str]) -> bytes:
    """Return the names as a header's value: percent-encoded and cut, since callers choose them."""
    names = [quote(name[:_SHOWN_CHARS], safe="") for name in ignored[:_SHOWN_NAMES]]
    more = [f"+{len(ignored) - _SHOWN_NAMES}"] if len(ignored) > _SHOWN_NAMES else []
    return ", ".join([*names, *more]).encode("ascii")


def rejection(model: str, name: str) -> TandemError:
    """Return the error of a request with a field that has no effect, where that is refused."""
    return invalid(
        f"{name}: Extra inputs are not permitted. Model '{model}' cannot honour `{name}`. "
        f"Remove `{name}`, or have the operator set UNKNOWN_FIELDS to ignore.",
        param=name,
    )
