"""An answer that is sent no faster than the client takes it, as Twisted tells of that."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from gateway.http.pace import Pace


class Channel:
    """Twisted's HTTP channel, as far as it matters here."""

    def __init__(self, *, waiting: bool = False) -> None:
        self._waitingForTransport = waiting
        self.aborted = False

    def forceAbortClient(self) -> None:  # noqa: N802
        self.aborted = True


class Protocol:
    """Daphne's protocol of one connection; its channel is None once that is closed."""

    def __init__(self, channel: Channel | None) -> None:
        self.channel = channel
        self.producer: Any = None

    def registerProducer(self, producer: Any, streaming: bool) -> None:  # noqa: N802
        assert streaming
        self.producer = producer

    def unregisterProducer(self) -> None:  # noqa: N802
        self.producer = None


async def reply(protocol: Protocol, message: dict[str, Any]) -> None:
    """Stand in for Daphne's `send`, which is bound to the protocol."""


async def test_it_waits_while_the_client_takes_nothing() -> None:
    protocol = Protocol(Channel())
    with Pace(partial(reply, protocol), 20) as pace:
        assert await pace.wait()
        protocol.producer.pauseProducing()
        waiting = asyncio.create_task(pace.wait())
        await asyncio.sleep(0)
        assert not waiting.done()
        protocol.producer.resumeProducing()
        assert await waiting
    assert protocol.producer is None


async def test_a_buffer_that_is_full_already_is_waited_for() -> None:
    protocol = Protocol(Channel(waiting=True))
    with Pace(partial(reply, protocol), 20) as pace:
        waiting = asyncio.create_task(pace.wait())
        await asyncio.sleep(0)
        assert not waiting.done()
        protocol.producer.resumeProducing()
        assert await waiting


async def test_who_takes_nothing_for_too_long_is_dropped() -> None:
    channel = Channel()
    protocol = Protocol(channel)
    with Pace(partial(reply, protocol), 0.01) as pace:
        protocol.producer.pauseProducing()
        assert not await pace.wait()
    assert channel.aborted


async def test_a_connection_that_closes_meanwhile_is_left_alone() -> None:
    protocol = Protocol(Channel())
    with Pace(partial(reply, protocol), 0.01) as pace:
        protocol.producer.pauseProducing()
        protocol.producer.stopProducing()
        protocol.channel = None
        assert not await pace.wait()


async def test_under_another_server_nothing_waits() -> None:
    async def send(message: dict[str, Any]) -> None:
        """Take everything."""

    with Pace(send, 0.01) as pace:
        assert await pace.wait()


def test_twisted_still_has_what_this_relies_on() -> None:
    from twisted.internet.testing import StringTransport
    from twisted.web.http import HTTPChannel, Request

    channel = HTTPChannel()
    channel.makeConnection(StringTransport())
    assert channel._waitingForTransport is False
    request = Request(channel)
    with Pace(partial(reply, request), 1) as pace:
        assert channel._requestProducer is pace
    assert channel._requestProducer is None
