"""What is kept is sent no faster than its client takes it."""

from __future__ import annotations

import asyncio
import uuid
from functools import partial
from typing import Any

from gateway.http.pace import Pace
from gateway.responses.answering import Paced
from gateway.responses.follow import Followed
from inference.events import Event
from jobs.models import StoredResponse


class Channel:
    """Twisted's HTTP channel of a client that takes nothing yet."""

    def __init__(self) -> None:
        self._waitingForTransport = True
        self.aborted = False

    def forceAbortClient(self) -> None:  # noqa: N802
        self.aborted = True


class Protocol:
    """Daphne's protocol of one connection."""

    def __init__(self) -> None:
        self.channel = Channel()
        self.producer: Any = None

    def registerProducer(self, producer: Any, streaming: bool) -> None:  # noqa: N802
        self.producer = producer

    def unregisterProducer(self) -> None:  # noqa: N802
        self.producer = None


class EmptyLog:
    """A log that says nothing."""

    async def next(self) -> list[Event]:
        return []

    def wake(self) -> None:
        """Nobody waits."""

    def close(self) -> None:
        """Nothing is open."""


async def reply(protocol: Protocol, message: dict[str, Any]) -> None:
    """Stand in for Daphne's `send`, which is bound to the protocol."""


def paced(protocol: Protocol, patience_s: float) -> Paced:
    row = StoredResponse(id=uuid.uuid4(), status=StoredResponse.Status.CANCELLED)

    async def load() -> tuple[StoredResponse, bool]:
        return row, False

    followed = Followed(row, EmptyLog(), load)
    return Paced(followed, lambda: Pace(partial(reply, protocol), patience_s))


async def test_a_client_that_is_behind_is_waited_for_and_nobody_holds_back_the_end() -> None:
    protocol = Protocol()
    source = paced(protocol, 20)
    waiting = asyncio.create_task(source.next())
    await asyncio.sleep(0)
    assert not waiting.done()
    protocol.producer.resumeProducing()
    await waiting
    assert protocol.producer is None


async def test_a_client_that_takes_nothing_for_long_is_left() -> None:
    protocol = Protocol()
    assert await paced(protocol, 0.01).next() == []
    assert protocol.channel.aborted
