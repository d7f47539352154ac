"""Text of upstreams as it can be sent on: no halves of characters. Pure.

JSON names what lies beyond Unicode's first plane by two escapes, and a server that cuts text
between UTF-16 units sends them in two pieces. Python's decoder keeps each as a character of its
own, which UTF-8 does not have: whoever encodes it fails, whatever else there is to say.
"""

from __future__ import annotations

from msgspec.structs import replace

from inference.events import (
    Event,
    Finished,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallStarted,
)

_Piece = TextDelta | ThinkingDelta | ToolCallDelta
_FIRST_HALVES = ("\ud800", "\udbff")


def mended(text: str) -> str:
    """Return a text whose halves are put together; one that is alone is U+FFFD."""
    if _is_whole(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class TextMender:
    """Mends the events of one answer: a half that ends a piece waits for the next of its kind."""

    def __init__(self) -> None:
        self._kind: type[_Piece] | None = None
        self._half = ""

    def feed(self, event: Event) -> Event | None:
        """Return the event as it can be sent on; None if it was but half a character."""
        match event:
            case TextDelta(text=text) | ThinkingDelta(text=text) | ToolCallDelta(arguments=text):
                return self._piece(event, text)
            case ToolCallStarted(name=name):
                event = replace(event, name=mended(name))
            case Finished(stop_sequence=str(text)):
                event = replace(event, stop_sequence=mended(text))
            case _:
                pass
        self._kind, self._half = None, ""
        return event

    def _piece(self, event: _Piece, text: str) -> Event | None:
        if type(event) is not self._kind:
            self._kind, self._half = type(event), ""
        if not self._half and _is_whole(text):
            return event
        text, self._half = self._half + text, ""
        if _FIRST_HALVES[0] <= text[-1:] <= _FIRST_HALVES[1]:
            text, self._half = text[:-1], text[-1]
        if not text:
            return None
        field = "arguments" if isinstance(event, ToolCallDelta) else "text"
        return replace(event, **{field: mended(text)})


def _is_whole(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
