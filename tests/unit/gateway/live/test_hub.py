"""Who is told what and when; what there is to tell is a board's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.live import hub as module
from gateway.live.hub import Hub
from gateway.live.parts import Parts
from inference.transport.options import TransportOptions
from tests.conftest import Eventually

OPTIONS = TransportOptions(redis_url="redis://nowhere")


class FakeBoard:
    """Has the parts that a test gives it."""

    def __init__(self) -> None:
        self.now: Parts = {"alerts": b"[]"}
        self.opened = self.closed = self.looks = 0
        self.fails = False
        self._news = asyncio.Event()

    @asynccontextmanager
    async def open(self, options: TransportOptions) -> AsyncIterator[FakeBoard]:
        self.opened += 1
        try:
            async with asyncio.TaskGroup():
                yield self
        finally:
            self.closed += 1

    def look(self, **parts: bytes) -> None:
        self.now = self.now | parts
        self._news.set()

    async def news(self) -> None:
        self.looks += 1
        await self._news.wait()
        self._news.clear()

    def parts(self) -> Parts:
        if self.fails:
            raise RuntimeError("a defect")
        return self.now


class Page:
    """A watcher that keeps what it is told."""

    def __init__(self, *permissions: str) -> None:
        self.permissions = frozenset(permissions)
        self.heard: list[dict[str, Any]] = []
        self.given_up = False

    async def tell(self, text: str) -> None:
        self.heard.append(json.loads(text))

    async def give_up(self) -> None:
        self.given_up = True

    @property
    def parts(self) -> list[dict[str, Any]]:
        return [message["parts"] for message in self.heard]


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> FakeBoard:
    made = FakeBoard()
    monkeypatch.setattr(module, "Board", made)
    monkeypatch.setattr(module, "_EVERY_S", 0.0)
    return made


async def test_who_comes_is_told_everything_and_then_what_changes(
    board: FakeBoard, eventually: Eventually
) -> None:
    hub, page = Hub(OPTIONS), Page()
    await hub.join(page)
    await eventually(lambda: len(page.heard) == 1)
    board.look(rates=b"1")
    await eventually(lambda: len(page.heard) == 2)
    assert page.parts == [{"alerts": []}, {"rates": 1}]
    assert [message["whole"] for message in page.heard] == [True, False]
    later = Page()
    await hub.join(later)
    assert later.parts == [{"alerts": [], "rates": 1}]
    hub.leave(page)
    hub.leave(later)


async def test_nothing_is_told_when_nothing_changes(
    board: FakeBoard, eventually: Eventually
) -> None:
    hub, page = Hub(OPTIONS), Page()
    await hub.join(page)
    for looks in range(1, 6):
        await eventually(lambda looks=looks: board.looks == looks)  # type: ignore[misc]
        board.look()
    await eventually(lambda: board.looks == 6)
    assert len(page.heard) == 1
    hub.leave(page)


async def test_everybody_is_told_what_they_may_see(
    board: FakeBoard, eventually: Eventually
) -> None:
    hub, viewer, owner = Hub(OPTIONS), Page(), Page("jobs.view_ledgerentry")
    for page in (viewer, owner):
        await hub.join(page)
    await eventually(lambda: bool(viewer.heard and owner.heard))
    board.look(balances=b"[1]")
    await eventually(lambda: len(owner.heard) == 2)
    board.look(rates=b"2")
    await eventually(lambda: len(owner.heard) == 3)
    assert viewer.parts == [{"alerts": []}, {"rates": 2}]
    assert owner.parts[1] == {"balances": [1]}
    hub.leave(viewer)
    hub.leave(owner)


async def test_it_looks_once_for_all_and_only_while_somebody_does(
    board: FakeBoard, eventually: Eventually
) -> None:
    hub, one, other = Hub(OPTIONS), Page(), Page()
    assert board.opened == 0
    await hub.join(one)
    await hub.join(other)
    await eventually(lambda: bool(one.heard and other.heard))
    hub.leave(one)
    assert board.closed == 0
    hub.leave(other)
    await eventually(lambda: board.closed == 1)
    assert board.opened == 1
    assert not one.given_up


async def test_who_comes_back_at_once_is_told_everything_anew(
    board: FakeBoard, eventually: Eventually
) -> None:
    hub, page = Hub(OPTIONS), Page()
    await hub.join(page)
    await eventually(lambda: len(page.heard) == 1)
    hub.leave(page)
    await hub.join(page)
    await eventually(lambda: len(page.heard) == 2)
    assert page.heard[1]["whole"]
    await eventually(lambda: (board.opened, board.closed) == (2, 1))
    hub.leave(page)


async def test_after_a_defect_pages_are_let_go_so_that_they_come_again(
    board: FakeBoard, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    hub, page = Hub(OPTIONS), Page()
    await hub.join(page)
    await eventually(lambda: len(page.heard) == 1)
    board.fails = True
    board.look()
    await eventually(lambda: page.given_up)
    assert "a defect" in caplog.text
    board.fails = False
    await hub.join(page)
    await eventually(lambda: len(page.heard) == 2)
    hub.leave(page)


async def test_pages_are_let_go_too_when_it_cannot_begin(
    board: FakeBoard, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def fail(options: TransportOptions) -> AsyncIterator[FakeBoard]:
        raise OSError("no more sockets")
        yield board

    hub, page = Hub(OPTIONS), Page()
    with monkeypatch.context() as patch:
        patch.setattr(board, "open", fail)
        await hub.join(page)
        await eventually(lambda: page.given_up)
    await hub.join(page)
    await eventually(lambda: len(page.heard) == 1)
    hub.leave(page)
