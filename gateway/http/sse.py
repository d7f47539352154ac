"""Server-sent events: the headers of a stream, and what keeps a quiet one alive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from gateway.errors import Header

# No proxy may buffer, cache or transform a stream.
STREAM_HEADERS: list[Header] = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]

# A comment line: invisible to every client, but bytes on the wire to every proxy.
COMMENT = b": waiting\n\n"

_encode = msgspec.json.Encoder().encode


def json_line(value: Any) -> bytes:
    """Encode as JSON that no reader takes for more than one line.

    JSON escapes ASCII's line breaks in strings; between its tokens, they may stand in what is put
    in as it was written (`msgspec.Raw`), such as a model's arguments. Unicode's three stand in
    strings as they are, and clients that split text into lines would cut a frame there.
    """
    encoded = _encode(value)
    if b"\n" in encoded or b"\r" in encoded:
        encoded = b" ".join(encoded.splitlines())
    if encoded.isascii():
        return encoded
    return (
        encoded.replace(b"\xc2\x85", b"\\u0085")
        .replace(b"\xe2\x80\xa8", b"\\u2028")
        .replace(b"\xe2\x80\xa9", b"\\u2029")
    )


class Quiet:
    """Calls `on_quiet` whenever nothing was sent for `interval_s`.

    One timer that looks when it fires, not one that is set anew for every token.
    """

    def __init__(self, interval_s: float, on_quiet: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._interval_s = interval_s
        self._on_quiet = on_quiet
        self._sent_s = self._loop.time()
        self._timer = self._loop.call_later(interval_s, self._look)

    def sent(self) -> None:
        """Note that something was sent just now."""
        self._sent_s = self._loop.time()

    def _look(self) -> None:
        quiet_s = self._loop.time() - self._sent_s
        if quiet_s >= self._interval_s:
            self._on_quiet()
            self.sent()
            quiet_s = 0.0
        self._timer = self._loop.call_later(self._interval_s - quiet_s, self._look)

    def stop(self) -> None:
        """End the timer."""
        self._timer.cancel()
