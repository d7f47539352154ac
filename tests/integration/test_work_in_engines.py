"""Engines that drain work from a real database: each row ends once, whatever becomes of them."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import connections
from django.utils import timezone
from pytest_django import Settings

from inference.backends.scripted import ScriptedBackend
from inference.engine import drain as drain_module
from inference.engine import host as host_module
from inference.engine.host import EngineHost
from inference.events import TextDelta
from inference.request import Lane
from inference.transport.connection import connect
from inference.transport.frames import EngineState, Frame
from inference.transport.keys import Keys
from inference.transport.options import TransportOptions
from jobs import batches
from jobs.models import Batch, LedgerEntry, Price, Work
from jobs.work.source import DatabaseSource
from tests.contracts.requests import make_entry
from tests.engine_host import Gateway
from tests.streams import until
from tests.work import new_batch, rows_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _ready(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.WORK_TERMS = "tests.work.no_terms"
    monkeypatch.setattr(host_module, "DRAIN_S", 0.05)
    monkeypatch.setattr(drain_module, "POLL_S", 0.05)


class Source(DatabaseSource):
    """Leaves no connection behind, for the tests' database is removed."""

    def close(self) -> None:
        super().close()
        connections.close_all()


@asynccontextmanager
async def engine(stall_after_s: float = 30, **engine_options: Any) -> AsyncIterator[EngineHost]:
    """Run an engine."""
    entry = make_entry(id="m", capacity=16, context_tokens=10_000, engine_options=engine_options)
    options = TransportOptions(
        redis_url=settings.REDIS_URL,
        prefix=f"integration-{secrets.token_hex(4)}",
        heartbeat_s=0.05,
        dead_after_s=1.0,
    )
    host = EngineHost(
        entry,
        ScriptedBackend(entry),
        options,
        stall_after_s,
        lambda engine_id: Source(engine_id, "m", "host"),
    )
    task = asyncio.create_task(host.run())
    yield host
    host.request_stop()
    async with asyncio.timeout(20):
        await task


async def see(look: Callable[[], bool]) -> None:
    """Wait until the database fulfils a condition."""

    def look_once() -> bool:
        try:
            return look()
        finally:
            connections.close_all()

    await until(lambda: asyncio.to_thread(look_once))


def begin(rows: int) -> Batch:
    Price.objects.create(
        model="m",
        effective_from=timezone.now() - timedelta(days=1),
        input_micros_per_mtok=1_000_000,
        cached_input_micros_per_mtok=1_000_000,
        cache_write_micros_per_mtok=1_000_000,
        output_micros_per_mtok=1_000_000,
    )
    batch = new_batch()
    return batches.begin(batch.pk, rows_of(batch, rows))


def check(batch: Batch, rows: int) -> None:
    """Every row has its answer, and is in the ledger once."""
    batch.refresh_from_db()
    assert (batch.total, batch.completed) == (rows, rows)
    assert Counter(Work.objects.values_list("outcome", flat=True)) == {"completed": rows}
    assert LedgerEntry.objects.filter(kind=LedgerEntry.Kind.USAGE).count() == rows


def test_two_engines_end_a_batch() -> None:
    batch = begin(300)

    async def drain() -> None:
        async with engine(), engine():
            await see(lambda: Batch.objects.get().completed == 300)

    asyncio.run(drain())
    check(batch, 300)


def test_an_engine_that_leaves_gives_back_what_it_has_not_ended() -> None:
    batch = begin(60)

    async def drain() -> None:
        async with engine(tokens=20, token_delay_s=0.02):
            await see(lambda: Batch.objects.get().completed >= 12)
        assert not await asyncio.to_thread(is_any_running)
        async with engine():
            await see(lambda: Batch.objects.get().completed == 60)

    asyncio.run(drain())
    check(batch, 60)
    assert not Work.objects.exclude(deaths=0).exists()


def test_what_a_hung_engine_had_is_done_by_another() -> None:
    batch = begin(20)

    async def drain() -> None:
        async with engine(stall_after_s=0.2, hang_at=0) as hung:
            await see(lambda: hung.report().state is EngineState.FAILED)
        async with engine():
            await see(lambda: Batch.objects.get().completed == 20)

    asyncio.run(drain())
    check(batch, 20)
    # All that it ran, and nothing that it did not.
    assert Work.objects.filter(deaths=1).count() == 15


def test_a_full_engine_makes_room_for_realtime_and_every_row_ends_once() -> None:
    batch = begin(40)

    async def drain() -> None:
        async with engine(tokens=9_000, token_delay_s=0.02) as host, gateway_of(host) as asking:
            await see(lambda: host.report().work_in_flight == 15)
            queue = Keys(host._options.prefix).queue("m", Lane.REALTIME)
            for number in range(6):
                await asking.ask(request_id=f"asked-{number}", queue=queue)
            # One found the place that is kept.
            await asking.see(lambda frames: len(begun(frames)) == 6)
            await see(lambda: preemptions() == 5)
            assert host.report().work_in_flight == 10
        async with engine():
            await see(lambda: Batch.objects.get().completed == 40)

    asyncio.run(drain())
    check(batch, 40)
    assert preemptions() == 5
    assert Work.objects.filter(deaths=0, attempts=1).count() == 40


@asynccontextmanager
async def gateway_of(host: EngineHost) -> AsyncIterator[Gateway]:
    """Play a gateway of an engine's system."""
    async with connect(settings.REDIS_URL) as client:
        made = Gateway(client, Keys(host._options.prefix))
        await made.live()
        yield made


def begun(frames: list[Frame]) -> set[str]:
    return {frame.request_id for frame in frames if isinstance(frame.body, TextDelta)}


def preemptions() -> int:
    return sum(Work.objects.values_list("preemptions", flat=True))


def is_any_running() -> bool:
    try:
        return Work.objects.filter(state=Work.State.RUNNING).exists()
    finally:
        connections.close_all()
