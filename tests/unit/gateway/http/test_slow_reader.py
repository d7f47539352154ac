"""What waits in memory for a client, as Daphne's protocol tells it."""

from __future__ import annotations

from functools import partial
from typing import Any

from gateway.http.slow_reader import SlowReader


class Channel:
    """Twisted's HTTP channel, as far as it matters here."""

    def __init__(self) -> None:
        self._waitingForTransport = False
        self.aborted = False

    def forceAbortClient(self) -> None:  # noqa: N802
        self.aborted = True


class Protocol:
    """Daphne's protocol of one connection; its channel is None once that is closed."""

    def __init__(self, channel: Channel | None) -> None:
        self.channel = channel


async def reply(protocol: Protocol, message: dict[str, Any]) -> None:
    """Stand in for Daphne's `send`, which is bound to the protocol."""


def test_a_client_that_takes_everything_is_never_behind() -> None:
    reader = SlowReader(partial(reply, Protocol(Channel())), 10)
    assert not any(reader.is_behind(1000) for _ in range(10))


def test_a_client_that_takes_nothing_is_behind_beyond_the_limit() -> None:
    channel = Channel()
    reader = SlowReader(partial(reply, Protocol(channel)), 10)
    channel._waitingForTransport = True
    assert [reader.is_behind(4) for _ in range(3)] == [False, False, True]


def test_a_client_that_catches_up_starts_again() -> None:
    channel = Channel()
    reader = SlowReader(partial(reply, Protocol(channel)), 10)
    for _ in range(5):
        channel._waitingForTransport = True
        assert not reader.is_behind(8)
        channel._waitingForTransport = False
        assert not reader.is_behind(8)


def test_dropping_closes_the_connection() -> None:
    channel = Channel()
    SlowReader(partial(reply, Protocol(channel)), 10).drop()
    assert channel.aborted


def test_a_connection_that_is_closed_already_is_left_alone() -> None:
    reader = SlowReader(partial(reply, Protocol(None)), 10)
    assert not reader.is_behind(1000)
    reader.drop()


def test_under_another_server_nothing_is_refused() -> None:
    async def send(message: dict[str, Any]) -> None:
        """Take everything."""

    reader = SlowReader(send, 10)
    assert not reader.is_behind(1000)
    reader.drop()


def test_twisted_still_has_what_this_relies_on() -> None:
    from twisted.web.http import HTTPChannel

    channel = HTTPChannel()
    assert channel._waitingForTransport is False
    assert callable(channel.forceAbortClient)
