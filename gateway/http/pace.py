"""Sends no faster than the client takes it.

Daphne keeps what the socket does not take. Twisted tells a producer that is registered with the
request when its buffer is over the mark and when it has drained: between the two nothing is sent.
"""

from __future__ import annotations

import asyncio
from functools import partial
from types import TracebackType
from typing import Self

from gateway.http.slow_reader import Send

SEND = "tandem.send"
"""Where the scope of a request that Django answers has what its server is sent messages by."""


class Pace:
    """Holds back whoever sends a large answer. Unregistered at the end of its block.

    A client that takes nothing for `patience_s` is taken for gone: its connection is dropped.
    """

    def __init__(self, send: Send, patience_s: float) -> None:
        # As in SlowReader: under any other server nothing is known, and nothing waits.
        self._protocol = send.args[0] if isinstance(send, partial) and send.args else None
        self._patience_s = patience_s
        self._may_go = asyncio.Event()
        self._may_go.set()

    def __enter__(self) -> Self:
        channel = getattr(self._protocol, "channel", None)
        if self._protocol is not None and channel is not None:
            self._protocol.registerProducer(self, True)
            if channel._waitingForTransport:
                self._may_go.clear()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # A connection that is closed has forgotten its producer.
        if self._protocol is not None and self._protocol.channel is not None:
            self._protocol.unregisterProducer()

    async def wait(self) -> bool:
        """Wait until the client has taken what it was sent. Return whether it is still there."""
        try:
            async with asyncio.timeout(self._patience_s):
                await self._may_go.wait()
        except TimeoutError:
            if self._protocol is not None and self._protocol.channel is not None:
                self._protocol.channel.forceAbortClient()
            return False
        return True

    # Twisted calls these by their names.

    def pauseProducing(self) -> None:  # noqa: N802
        """Send no more for now."""
        self._may_go.clear()

    def resumeProducing(self) -> None:  # noqa: N802
        """Go on."""
        self._may_go.set()

    def stopProducing(self) -> None:  # noqa: N802
        """Do nothing: that the client has left comes as a message of its own."""
