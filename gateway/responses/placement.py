"""Where a response is to be made: at once, or in the background and by when. Pure.

OpenAI's `background` and `background_options.completion_window`, and what sference's clients put
into `metadata`: `completion_window`, `stream_id`, `custom_id` (contracts 1.3, 10.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

from gateway.dialects.validation import invalid_at

_HOUR_S = 60 * 60
DEFAULT_WINDOW_S = 24 * _HOUR_S
# OpenAI's "soonest" sets no time: it is the lane that makes it soon.
_WINDOWS_S = {
    "soonest": DEFAULT_WINDOW_S,
    "2h": 2 * _HOUR_S,
    "8h": 8 * _HOUR_S,
    "24h": 24 * _HOUR_S,
}
_CUSTOM_ID_CHARS = 512


class Placement(NamedTuple):
    """A response in the background: done within `window_s`, in a stream or in none."""

    window_s: int
    stream_id: UUID | None
    custom_id: str


def place(body: Mapping[str, Any]) -> Placement | None:
    """Return how a request wants to be run in the background; None: it does not.

    A stream's responses are all made in the background, whether they say so or not, as sference's
    clients do not. Raises INVALID_REQUEST for a window that is not one, one without `background`,
    and `background` with `store` false (contracts 10.5).
    """
    metadata: Mapping[str, Any] = body.get("metadata") or {}
    stream_id = _stream_id(metadata.get("stream_id"))
    options: Mapping[str, Any] = body.get("background_options") or {}
    windows = {
        "background_options.completion_window": options.get("completion_window"),
        "metadata.completion_window": metadata.get("completion_window"),
    }
    asked = [_window_s(param, value) for param, value in windows.items() if value is not None]
    if not body.get("background") and stream_id is None:
        for param, value in windows.items():
            if value is not None:
                raise invalid_at(
                    param, "is for responses in the background: set background to true"
                )
        return None
    if body.get("store") is False:
        raise invalid_at("store", "a response in the background is always stored")
    return Placement(
        window_s=min(asked, default=DEFAULT_WINDOW_S),
        stream_id=stream_id,
        custom_id=_custom_id(metadata.get("custom_id")),
    )


def _window_s(param: str, value: object) -> int:
    seconds = _WINDOWS_S.get(value) if isinstance(value, str) else None
    if seconds is None:
        raise invalid_at(param, "should be 'soonest', '2h', '8h' or '24h'")
    return seconds


def _stream_id(value: object) -> UUID | None:
    """Metadata is the caller's: only what looks like a stream's id is taken for one."""
    try:
        return UUID(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _custom_id(value: object) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else str(value)
    if len(text) > _CUSTOM_ID_CHARS or "\0" in text:
        raise invalid_at(
            "metadata.custom_id", f"should have at most {_CUSTOM_ID_CHARS} characters, none NUL"
        )
    return text
