"""What must be told to Redis although nobody waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from gateway.accounting import releases as releases_module
from gateway.accounting.releases import Releases
from jobs.quota.claims import Ended
from tests.conftest import Eventually


class Server:
    """Notes what it is told, when it is there."""

    def __init__(self) -> None:
        self.away = False
        self.refused = 0
        self.told: list[list[int]] = []
        self.teams: list[int] = []

    def tell(self, team_id: int, ended: Sequence[Ended]) -> asyncio.Future[None]:
        answer = asyncio.get_running_loop().create_future()
        if self.away:
            self.refused += 1
            answer.set_exception(RedisConnectionError())
            return answer
        self.teams.append(team_id)
        self.told.append([each.prompt_tokens for each in ended])
        if ended[0].prompt_tokens < 0:
            answer.set_exception(ResponseError())
        else:
            answer.set_result(None)
        return answer

    @property
    def heard(self) -> list[int]:
        return [number for batch in self.told for number in batch]


def ended(number: int) -> Ended:
    return Ended(request_id="r", prompt_tokens=number)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases_module, "RETRY_AFTER_S", 0.001)


async def test_everything_is_told_many_at_a_time(server: Server) -> None:
    releases = Releases(server.tell)
    for number in range(100):
        releases.put(1, ended(number))
    await releases.stop()
    assert server.heard == list(range(100))
    assert [len(batch) for batch in server.told] == [32, 32, 32, 4]


async def test_it_tells_without_being_stopped(server: Server, eventually: Eventually) -> None:
    releases = Releases(server.tell)
    releases.put(1, ended(1))
    releases.put(2, ended(2))
    releases.put(1, ended(3))
    assert server.told == []
    await eventually(lambda: server.told == [[1, 3], [2]])
    assert server.teams == [1, 2]


async def test_what_waits_is_sent_at_once_ahead_of_what_follows(server: Server) -> None:
    releases = Releases(server.tell)
    releases.flush()
    releases.put(1, ended(1))
    releases.flush()
    assert server.told == [[1]]
    await releases.stop()


async def test_a_server_that_is_away_is_not_asked_for_each_request(
    server: Server, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases_module, "RETRY_AFTER_S", 3600)
    releases = Releases(server.tell)
    server.away = True
    releases.put(1, ended(1))
    await eventually(lambda: server.refused == 1)
    for _ in range(5):
        releases.flush()
    assert server.refused == 1
    await releases.stop()


async def test_it_tells_as_soon_as_the_server_is_there(
    server: Server, eventually: Eventually
) -> None:
    releases = Releases(server.tell)
    server.away = True
    for number in range(20):
        releases.put(1, ended(number))
    await eventually(lambda: server.refused >= 3)
    server.away = False
    await eventually(lambda: server.heard == list(range(20)))
    await releases.stop()


async def test_what_the_server_refuses_is_not_told_again(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    releases = Releases(server.tell)
    releases.put(1, ended(-1))
    await releases.stop()
    releases.put(1, ended(1))
    await releases.stop()
    assert server.told == [[-1], [1]]
    assert caplog.text.count("Redis refuses to end requests") == 1


async def test_what_is_told_for_too_long_is_left_to_its_lease(
    server: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases_module, "_MAX_WAITING", 2)
    server.away = True
    releases = Releases(server.tell)
    for number in range(3):
        releases.put(1, ended(number))
    server.away = False
    await releases.stop()
    assert server.heard == [0, 1]
    assert "its lease ends it" in caplog.text


async def test_it_stops_although_the_server_is_away(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases_module, "_STOP_S", 0.01)
    server.away = True
    releases = Releases(server.tell)
    releases.put(1, ended(1))
    await releases.stop()
    assert server.heard == []
