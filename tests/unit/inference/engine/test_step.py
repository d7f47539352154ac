"""The engines of one worker."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from inference.backends.port import Backend
from inference.catalogue import ModelEntry
from inference.engine import step
from inference.engine.options import EngineOptions
from inference.engine.step import EngineThread
from inference.transport.options import TransportOptions
from inference.upstreams import UpstreamEntry
from tests.conftest import Eventually
from tests.contracts.requests import make_entry

UPSTREAM = UpstreamEntry(
    name="there",
    base_url="http://127.0.0.1:9",
    key="",
    connect_timeout_s=1,
    read_timeout_s=1,
    retries=0,
    requests_per_minute=None,
)


class FakeHost:
    """An engine that fails until its entry says otherwise, and then runs until it is stopped."""

    def __init__(self, entry: ModelEntry, backend: Backend, *_: Any) -> None:
        self.entry = entry
        self.started = asyncio.Event()
        self._stopped = asyncio.Event()
        hosts.append(self)

    async def run(self) -> bool:
        if self.entry.upstream_model != "right":
            return False
        self.started.set()
        await self._stopped.wait()
        return True

    def request_stop(self) -> None:
        self._stopped.set()


hosts: list[FakeHost] = []


@pytest.fixture(autouse=True)
def _fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts.clear()
    monkeypatch.setattr(step, "EngineHost", FakeHost)


def thread() -> EngineThread:
    transport = TransportOptions(
        redis_url="redis://127.0.0.1:9",
        prefix="t",
        heartbeat_s=1,
        dead_after_s=3,
        enqueue_wait_s=1,
    )
    options = EngineOptions(
        models=("m",),
        models_dir=Path(),
        stall_after_s=1,
        work_source=lambda *_: pytest.fail("no work is asked for"),
        transport=transport,
    )
    return EngineThread(options)


def unchanged(entry: ModelEntry, backend: Backend) -> Backend:
    return backend


def begin(worker: EngineThread, entry: ModelEntry) -> asyncio.Future[bool]:
    host = worker._host(entry, unchanged)
    return asyncio.ensure_future(worker._run(entry, host, unchanged))


async def test_an_engine_that_failed_ends_its_worker() -> None:
    assert not await begin(thread(), make_entry())
    assert len(hosts) == 1


async def test_a_model_that_others_run_is_started_anew_as_the_catalogue_says_by_then(
    monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    wrong = make_entry(backend="openai", upstream=UPSTREAM, upstream_model="wrong")
    right = make_entry(backend="openai", upstream=UPSTREAM, upstream_model="right")
    entries = iter([wrong, wrong, right])
    monkeypatch.setattr(step, "reload_entry", lambda _: next(entries))
    worker = thread()

    running = begin(worker, wrong)
    await eventually(lambda: len(hosts) == 4)
    await hosts[-1].started.wait()
    worker._request_stop()

    assert await running
    assert [host.entry.upstream_model for host in hosts] == ["wrong", "wrong", "wrong", "right"]


async def test_none_is_started_anew_once_the_worker_is_told_to_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong = make_entry(backend="openai", upstream=UPSTREAM)
    worker = thread()

    def reload(entry: ModelEntry) -> ModelEntry:
        worker._request_stop()
        return entry

    monkeypatch.setattr(step, "reload_entry", reload)

    assert await begin(worker, wrong)
    assert len(hosts) == 1
