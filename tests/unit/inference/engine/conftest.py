"""A drain, the scripted engine, and a source of work in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis.asyncio

from inference.admission import Admission
from inference.backends.scripted import ScriptedBackend
from inference.engine import drain as drain_module
from inference.engine import outcomes as outcomes_module
from inference.engine.drain import Drain, Logs
from inference.transport.courier import Courier
from inference.transport.keys import Keys
from tests.contracts.requests import make_entry
from tests.work_source import FakeSource


class Engine:
    """A drain and what it works with."""

    def __init__(
        self, source: FakeSource, client: redis.asyncio.Redis, keys: Keys, backend: ScriptedBackend
    ) -> None:
        self.admission = Admission(backend.capacity)
        self.drain = Drain(
            "model-under-test", backend, self.admission, source, Logs(Courier(client), keys)
        )
        self.task = asyncio.create_task(self.drain.run())

    async def stop(self, *, engine_died: bool = False) -> None:
        self.drain.stop_taking()
        self.drain.break_off(engine_died=engine_died)
        if tasks := self.drain.tasks:
            await asyncio.wait(tasks)
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.drain.close()


@pytest.fixture
def start(client: redis.asyncio.Redis, keys: Keys, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the start of a drain that is in a hurry."""
    monkeypatch.setattr(drain_module, "LEASE_RENEW_S", 0.02)
    monkeypatch.setattr(drain_module, "POLL_S", 0.02)
    monkeypatch.setattr(outcomes_module, "_RETRY_AFTER_S", 0.02)

    @asynccontextmanager
    async def started(
        source: FakeSource, backend: type[ScriptedBackend] = ScriptedBackend, **fields: Any
    ) -> AsyncIterator[Engine]:
        entry = make_entry(**({"context_tokens": 1_000_000} | fields))
        engine = Engine(source, client, keys, backend(entry))
        yield engine
        if not engine.task.done():
            await engine.stop()

    return started
