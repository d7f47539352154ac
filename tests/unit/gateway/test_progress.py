"""The pace of a batch; who may watch one is in tests/acceptance."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import cast
from unittest.mock import AsyncMock

import pytest
from channels.routing import URLRouter
from channels.testing import WebsocketCommunicator
from django.urls import path

from gateway import progress as module
from gateway.progress import DENIED, BatchProgress, Pace, Progress
from gateway.services import Services

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
RUNNING = Progress(
    id="01a22ca1-8f01-774c-a66e-ae3ee4fbf1b4",
    form="openai",
    status="in_progress",
    total=2,
    completed=0,
    failed=0,
    cancelled=0,
    expired=0,
    input_tokens=0,
    output_tokens=0,
    cost_micros=0,
    created_at=NOON,
    expires_at=NOON,
    ended_at=None,
)
TEAM = 7
PATIENCE_S = 60


class Watching(BatchProgress):
    """Watches a batch that runs; `teams` are those that may be seen, at each look the next."""

    def __init__(self, teams: list[set[int] | None]) -> None:
        super().__init__(services=cast("Services", AsyncMock()))
        self.teams = teams

    async def _teams(self) -> set[int] | None:
        return self.teams.pop(0)

    async def _look(self, batch_id: str) -> tuple[Progress, int]:
        return RUNNING, TEAM


def test_nothing_is_known_at_first() -> None:
    assert Pace().time_left_s(0, 0, 10) is None


def test_the_rest_takes_as_long_as_the_pace_says() -> None:
    pace = Pace()
    pace.time_left_s(0, 0, 100)
    assert pace.time_left_s(2, 20, 100) == 8


def test_a_pause_makes_it_longer_and_not_endless() -> None:
    pace = Pace()
    pace.time_left_s(0, 0, 100)
    pace.time_left_s(1, 10, 100)
    assert pace.time_left_s(2, 10, 100) == pytest.approx(90 / 8)


def test_a_batch_that_has_not_moved_has_no_forecast() -> None:
    pace = Pace()
    pace.time_left_s(0, 5, 100)
    assert pace.time_left_s(1, 5, 100) is None


@pytest.mark.parametrize("at_first", [None, {TEAM}])
async def test_who_may_not_see_it_any_more_is_told_no_more(
    at_first: set[int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(module, "_CHECK_EVERY_S", 0.0)
    watching = Watching.as_asgi(teams=[at_first, at_first, set()])
    application = URLRouter([path("<str:batch_id>", watching)])
    socket = WebsocketCommunicator(application, f"/{RUNNING.id}")
    assert await socket.connect(timeout=PATIENCE_S) == (True, None)
    assert RUNNING.id in await socket.receive_from(timeout=PATIENCE_S)
    assert await socket.receive_output(timeout=PATIENCE_S) == {
        "type": "websocket.close",
        "code": DENIED,
    }
    await socket.disconnect(timeout=PATIENCE_S)
