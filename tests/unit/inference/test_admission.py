"""The permits of one engine."""

from __future__ import annotations

import asyncio

import pytest

from inference.admission import Admission
from inference.request import Lane
from tests.conftest import Eventually


async def waiting(admission: Admission, lane: Lane) -> asyncio.Task[None]:
    """Return somebody who waits for a permit already."""
    task = asyncio.create_task(admission.acquire(lane))
    await asyncio.sleep(0)
    assert not task.done()
    return task


async def test_realtime_may_have_every_permit() -> None:
    admission = Admission(2)
    await admission.acquire(Lane.REALTIME)
    await admission.acquire(Lane.REALTIME)
    assert admission.in_use == 2
    assert admission.room(Lane.REALTIME) == 0


@pytest.mark.parametrize(("capacity", "kept"), [(1, 0), (2, 1), (4, 1), (8, 2), (64, 16)])
def test_lower_lanes_leave_places_free(capacity: int, kept: int) -> None:
    admission = Admission(capacity)
    assert admission.try_acquire(Lane.BATCH, 1000) == capacity - kept
    assert admission.try_acquire(Lane.FLEX, 1) == 0
    assert admission.room(Lane.REALTIME) == kept


async def test_they_leave_them_free_beside_what_realtime_uses() -> None:
    admission = Admission(8)
    for _ in range(3):
        await admission.acquire(Lane.REALTIME)
    assert admission.try_acquire(Lane.BATCH, 1000) == 3
    assert admission.room(Lane.REALTIME) == 2


async def test_one_more_waits_for_a_permit_that_is_given_back(eventually: Eventually) -> None:
    admission = Admission(1)
    await admission.acquire(Lane.REALTIME)
    one_more = await waiting(admission, Lane.REALTIME)
    admission.release(Lane.REALTIME)
    await eventually(one_more.done)
    assert admission.in_use == 1


async def test_a_permit_is_given_to_one_waiter_only(eventually: Eventually) -> None:
    admission = Admission(1)
    await admission.acquire(Lane.REALTIME)
    tasks = [await waiting(admission, Lane.REALTIME) for _ in range(3)]
    for served in (1, 2, 3):
        admission.release(Lane.REALTIME)
        await eventually(lambda: sum(task.done() for task in tasks) == served)  # noqa: B023
        assert admission.in_use == 1


async def test_the_most_urgent_who_waits_is_served_first(eventually: Eventually) -> None:
    admission = Admission(1)
    await admission.acquire(Lane.BATCH)
    tasks = {
        lane: await waiting(admission, lane) for lane in (Lane.BATCH, Lane.FLEX, Lane.REALTIME)
    }
    held = Lane.BATCH
    for served, lane in enumerate((Lane.REALTIME, Lane.FLEX, Lane.BATCH), start=1):
        admission.release(held)
        await eventually(tasks[lane].done)
        assert sum(task.done() for task in tasks.values()) == served
        held = lane


async def test_nobody_takes_what_somebody_more_urgent_waits_for() -> None:
    admission = Admission(4)
    assert admission.try_acquire(Lane.BATCH, 4) == 3
    flex = await waiting(admission, Lane.FLEX)
    assert admission.try_acquire(Lane.BATCH, 1) == 0
    admission.release(Lane.BATCH)
    # It is the other's, although it has not run yet.
    assert admission.try_acquire(Lane.BATCH, 1) == 0
    await flex


async def test_who_leaves_while_waiting_costs_no_permit(eventually: Eventually) -> None:
    admission = Admission(1)
    await admission.acquire(Lane.REALTIME)
    leaving, granted = [await waiting(admission, Lane.REALTIME) for _ in range(2)]
    leaving.cancel()
    await eventually(leaving.done)
    admission.release(Lane.REALTIME)
    # Cancelled between the grant and its own next step.
    granted.cancel()
    await eventually(granted.done)
    assert admission.in_use == 0


async def test_standing_by_takes_nothing_from_the_lower_lanes() -> None:
    admission = Admission(4)
    await admission.stand_by()
    await admission.stand_by()
    assert admission.in_use == 0
    assert admission.try_acquire(Lane.BATCH, 4) == 3
    assert admission.room(Lane.REALTIME) == 0
    admission.begin()
    assert admission.in_use == 4


async def test_standing_by_lets_a_waiter_on_who_waited_for_it(eventually: Eventually) -> None:
    admission = Admission(2)
    for _ in range(2):
        await admission.acquire(Lane.REALTIME)
    standing_by = asyncio.create_task(admission.stand_by())
    await asyncio.sleep(0)
    batch = await waiting(admission, Lane.BATCH)
    admission.release(Lane.REALTIME)
    await eventually(standing_by.done)
    assert not batch.done()
    admission.release(Lane.REALTIME)
    await eventually(batch.done)
