"""The permits of one engine."""

from __future__ import annotations

import asyncio

from inference.admission import Admission
from inference.request import Lane
from tests.conftest import Eventually


async def test_it_gives_as_many_permits_as_it_has() -> None:
    admission = Admission(2)
    await admission.acquire(Lane.REALTIME)
    await admission.acquire(Lane.BATCH)
    assert admission.in_use == 2


async def test_one_more_waits_for_a_permit_that_is_given_back(eventually: Eventually) -> None:
    admission = Admission(1)
    await admission.acquire(Lane.REALTIME)
    waiting = asyncio.create_task(admission.acquire(Lane.REALTIME))
    await asyncio.sleep(0)
    assert not waiting.done()
    admission.release(Lane.REALTIME)
    await eventually(waiting.done)
    assert admission.in_use == 1


async def test_a_permit_is_given_to_one_waiter_only(eventually: Eventually) -> None:
    admission = Admission(1)
    await admission.acquire(Lane.REALTIME)
    waiting = [asyncio.create_task(admission.acquire(Lane.REALTIME)) for _ in range(3)]
    await asyncio.sleep(0)
    for served in (1, 2, 3):
        admission.release(Lane.REALTIME)
        await eventually(lambda: sum(task.done() for task in waiting) == served)  # noqa: B023
        assert admission.in_use == 1
