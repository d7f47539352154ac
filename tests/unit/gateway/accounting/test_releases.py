"""What must be told to Redis although nobody waits for it."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from gateway.accounting import releases as releases_module
from gateway.accounting.releases import Releases
from tests.conftest import Eventually


class Server:
    """Notes what it is told, when it is there."""

    def __init__(self) -> None:
        self.away = False
        self.refused = 0
        self.told: list[int] = []
        self.at_once = 0
        self.most_at_once = 0

    async def tell(self, number: int) -> None:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        if self.away:
            self.refused += 1
            raise RedisConnectionError
        if number < 0:
            raise ResponseError
        self.told.append(number)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases_module, "RETRY_AFTER_S", 0.001)


async def test_everything_is_told_a_few_at_a_time(server: Server) -> None:
    releases = Releases()
    for number in range(100):
        releases.put(partial(server.tell, number))
    await releases.stop()
    assert sorted(server.told) == list(range(100))
    assert 1 < server.most_at_once <= 8


async def test_it_tells_as_soon_as_the_server_is_there(
    server: Server, eventually: Eventually
) -> None:
    releases = Releases()
    server.away = True
    for number in range(20):
        releases.put(partial(server.tell, number))
    await eventually(lambda: server.refused >= 40)
    server.away = False
    await eventually(lambda: sorted(server.told) == list(range(20)))
    await releases.stop()


async def test_what_the_server_refuses_is_not_told_again(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    releases = Releases()
    releases.put(partial(server.tell, -1))
    releases.put(partial(server.tell, 1))
    await releases.stop()
    assert server.told == [1]
    assert caplog.text.count("Redis refuses to end a request") == 1


async def test_it_begins_again_after_it_was_idle(server: Server) -> None:
    releases = Releases()
    for number in range(3):
        releases.put(partial(server.tell, number))
        await releases.stop()
    assert server.told == [0, 1, 2]


async def test_it_keeps_only_so_many(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases_module, "_MAX_WAITING", 3)
    releases = Releases()
    for number in range(5):
        releases.put(partial(server.tell, number))
    await releases.stop()
    assert server.told == [0, 1, 2]


async def test_it_stops_although_the_server_is_away(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases_module, "_STOP_S", 0.01)
    releases = Releases()
    server.away = True
    releases.put(partial(server.tell, 1))
    await releases.stop()
    assert server.told == []
