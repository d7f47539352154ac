"""Bounds what waits in memory for a client that reads too slowly.

Daphne takes everything that is sent to it and keeps what the socket does not take. Twisted tells
the HTTP channel when its buffer is over the mark and when it has drained; from that, and from what
is sent meanwhile, follows how much is waiting.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

Send = Callable[[dict[str, Any]], Awaitable[None]]


class SlowReader:
    """Counts the bytes that were sent while the client's socket took nothing."""

    def __init__(self, send: Send, limit_bytes: int) -> None:
        # Daphne's `send` is bound to the protocol of the connection; under any other server
        # nothing is known, and nothing is refused.
        self._protocol = send.args[0] if isinstance(send, partial) and send.args else None
        self._limit_bytes = limit_bytes
        self._waiting_bytes = 0

    def is_behind(self, size: int) -> bool:
        """Count a piece about to be sent. Return whether the client is too far behind for it."""
        channel = getattr(self._protocol, "channel", None)
        if not getattr(channel, "_waitingForTransport", False):
            self._waiting_bytes = 0
            return False
        self._waiting_bytes += size
        return self._waiting_bytes > self._limit_bytes

    def drop(self) -> None:
        """Close the connection and forget what waits for it."""
        if self._protocol is not None and self._protocol.channel is not None:
            self._protocol.channel.forceAbortClient()
