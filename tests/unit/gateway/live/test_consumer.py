"""One page that watches: let in, told that it is alive, and checked again."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

import pytest
from channels.sessions import CookieMiddleware
from channels.testing import WebsocketCommunicator

from gateway.live import consumer as module
from gateway.live.consumer import DENIED, TRY_AGAIN, Live
from gateway.live.hub import Hub, Watcher
from gateway.threads import DatabaseThreads
from inference.errors import ErrorCode, TandemError

PATIENCE_S = 60
VIEWER, OPERATOR = frozenset({"jobs.view_work"}), frozenset({"jobs.view_work", "jobs.view_batch"})
AWAY = TandemError(ErrorCode.UNAVAILABLE, "the database cannot be reached right now")

Answer = frozenset[str] | None | TandemError


class FakeDatabase:
    """Says what an operator may do, at each look the next; the last answer stays."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)

    async def run(self, call: Callable[[], object]) -> frozenset[str] | None:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, TandemError):
            raise answer
        return answer


class FakeHub:
    """Tells who comes what it may do, and remembers who has left."""

    def __init__(self) -> None:
        self.left = 0

    async def join(self, watcher: Watcher) -> None:
        await watcher.tell(json.dumps(sorted(watcher.permissions)))

    def leave(self, watcher: Watcher) -> None:
        self.left += 1


def watching(hub: FakeHub, *answers: Answer) -> WebsocketCommunicator:
    """Return a page of an operator who may do so much, at each look the next."""
    database = cast("DatabaseThreads", FakeDatabase(*answers))
    live = Live.as_asgi(hub=cast("Hub", hub), database=database)
    return WebsocketCommunicator(CookieMiddleware(live), "/admin/live")


@pytest.fixture
def _checks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHECK_EVERY_S", 0.0)


async def closing_code(socket: WebsocketCommunicator) -> Any:
    return (await socket.receive_output(timeout=PATIENCE_S))["code"]


async def test_while_the_database_is_away_it_is_to_come_again() -> None:
    hub = FakeHub()
    socket = watching(hub, AWAY)
    assert await socket.connect(timeout=PATIENCE_S) == (True, None)
    assert await closing_code(socket) == TRY_AGAIN
    await socket.disconnect(timeout=PATIENCE_S)


async def test_it_is_told_the_time_when_it_asks() -> None:
    socket = watching(FakeHub(), VIEWER)
    await socket.connect(timeout=PATIENCE_S)
    assert await socket.receive_json_from(timeout=PATIENCE_S) == ["jobs.view_work"]
    await socket.send_to("?")
    told = await socket.receive_json_from(timeout=PATIENCE_S)
    assert (told["whole"], told["parts"]) == (False, {})
    assert told["at_s"] > 0
    await socket.disconnect(timeout=PATIENCE_S)


@pytest.mark.usefixtures("_checks_at_once")
async def test_who_may_more_than_before_is_told_everything_anew() -> None:
    hub = FakeHub()
    socket = watching(hub, VIEWER, AWAY, VIEWER, OPERATOR)
    await socket.connect(timeout=PATIENCE_S)
    assert await socket.receive_json_from(timeout=PATIENCE_S) == sorted(VIEWER)
    assert await socket.receive_json_from(timeout=PATIENCE_S) == sorted(OPERATOR)
    assert hub.left == 0
    await socket.disconnect(timeout=PATIENCE_S)
    assert hub.left == 1


@pytest.mark.usefixtures("_checks_at_once")
async def test_who_may_nothing_any_more_is_told_no_more() -> None:
    hub = FakeHub()
    socket = watching(hub, VIEWER, None)
    await socket.connect(timeout=PATIENCE_S)
    assert await socket.receive_json_from(timeout=PATIENCE_S) == sorted(VIEWER)
    assert await closing_code(socket) == DENIED
    assert hub.left == 1
    await socket.disconnect(timeout=PATIENCE_S)
