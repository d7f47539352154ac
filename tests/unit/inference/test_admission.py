"""The permits of one engine."""

from __future__ import annotations

import asyncio

import pytest

from inference.admission import QUIET_AFTER_S, Admission
from inference.request import Lane
from tests.conftest import Eventually


class Clock:
    """A clock that stands still unless it is moved."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


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


@pytest.mark.parametrize(("capacity", "kept"), [(1, 0), (2, 1), (4, 1), (8, 1), (64, 1)])
def test_lower_lanes_leave_a_place_free_if_there_are_two(capacity: int, kept: int) -> None:
    admission = Admission(capacity)
    assert admission.keeps == (kept > 0)
    assert admission.kept == kept
    assert admission.try_acquire(Lane.BATCH, 1000) == capacity - kept
    assert admission.try_acquire(Lane.FLEX, 1) == 0
    assert admission.room(Lane.REALTIME) == kept


async def test_they_leave_one_free_beside_what_realtime_uses() -> None:
    admission = Admission(8)
    for _ in range(3):
        await admission.acquire(Lane.REALTIME)
    assert admission.try_acquire(Lane.BATCH, 1000) == 4
    assert admission.room(Lane.REALTIME) == 1


def test_as_many_are_kept_as_realtime_needed_at_its_peak_and_one_more() -> None:
    admission = Admission(64, Clock())
    admission.try_acquire(Lane.REALTIME, 5)
    assert admission.kept == 1
    admission.release(Lane.REALTIME, 2)
    assert admission.kept == 3
    admission.release(Lane.REALTIME, 3)
    assert admission.kept == 6
    admission.try_acquire(Lane.REALTIME, 1)
    assert admission.kept == 5


def test_no_more_than_a_quarter_is_kept() -> None:
    admission = Admission(16, Clock())
    admission.try_acquire(Lane.REALTIME, 16)
    admission.release(Lane.REALTIME, 16)
    assert admission.kept == 4
    assert admission.try_acquire(Lane.BATCH, 1000) == 12


def test_a_request_that_was_stood_by_for_counts_for_the_peak() -> None:
    admission = Admission(64, Clock())
    for _ in range(3):
        assert admission.try_stand_by()
        admission.begin()
    admission.release(Lane.REALTIME, 3)
    assert admission.kept == 4


def test_a_peak_is_forgotten_after_half_a_minute_to_one() -> None:
    clock = Clock()
    admission = Admission(64, clock)
    admission.try_acquire(Lane.REALTIME, 5)
    admission.release(Lane.REALTIME, 5)
    clock.now_s += 31
    assert admission.kept == 6
    # A lower one follows.
    admission.try_acquire(Lane.REALTIME, 2)
    admission.release(Lane.REALTIME, 2)
    clock.now_s += 31
    assert admission.kept == 3
    clock.now_s += 31
    assert admission.kept == 1


def test_a_peak_is_forgotten_while_nobody_looks() -> None:
    clock = Clock()
    admission = Admission(64, clock)
    admission.try_acquire(Lane.REALTIME, 5)
    admission.release(Lane.REALTIME, 5)
    clock.now_s += 100
    assert admission.kept == 1


def test_requests_that_run_for_long_are_a_peak_as_long_as_they_do() -> None:
    clock = Clock()
    admission = Admission(64, clock)
    admission.try_acquire(Lane.REALTIME, 5)
    clock.now_s += 3600
    assert admission.kept == 1
    for _ in range(5):
        admission.release(Lane.REALTIME)
    assert admission.kept == 6


async def test_places_that_are_not_kept_any_more_are_handed_out(eventually: Eventually) -> None:
    clock = Clock()
    admission = Admission(8, clock)
    admission.try_acquire(Lane.REALTIME, 4)
    admission.release(Lane.REALTIME, 4)
    assert admission.try_acquire(Lane.BATCH, 1000) == 6
    batch = await waiting(admission, Lane.BATCH)
    admission.tick()
    await asyncio.sleep(0)
    assert not batch.done()
    clock.now_s += 3600
    admission.tick()
    await eventually(batch.done)
    assert admission.in_use == 7


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


async def test_who_has_just_left_is_granted_nothing(eventually: Eventually) -> None:
    admission = Admission(1)
    await admission.acquire(Lane.REALTIME)
    leaving, next_one = [await waiting(admission, Lane.REALTIME) for _ in range(2)]
    leaving.cancel()
    admission.release(Lane.REALTIME)
    await eventually(lambda: leaving.done() and next_one.done())
    assert leaving.cancelled()
    assert admission.in_use == 1


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


def test_standing_by_takes_no_permit_from_others() -> None:
    admission = Admission(2)
    assert admission.try_acquire(Lane.REALTIME, 2) == 2
    assert not admission.try_stand_by()
    admission.release(Lane.REALTIME)
    assert admission.try_stand_by()
    # It has it already.
    assert admission.try_stand_by()
    assert admission.try_acquire(Lane.REALTIME, 1) == 0
    admission.begin()
    assert admission.held(Lane.REALTIME) == 2


async def test_nobody_stands_by_before_who_waits_for_a_permit() -> None:
    admission = Admission(2)
    assert admission.try_acquire(Lane.REALTIME, 2) == 2
    one_more = await waiting(admission, Lane.REALTIME)
    assert not admission.try_stand_by()
    admission.release(Lane.REALTIME)
    assert not admission.try_stand_by()
    await one_more


def test_after_a_long_quiet_work_has_the_whole_engine() -> None:
    clock = Clock()
    admission = Admission(8, clock)
    clock.now_s += QUIET_AFTER_S
    assert admission.room(Lane.BATCH) == 7
    clock.now_s += 1.0
    assert admission.try_stand_by()
    assert admission.try_acquire(Lane.BATCH, 1000) == 8


def test_who_stood_by_begins_though_work_has_its_place_and_work_gives_it_up() -> None:
    clock = Clock()
    admission = Admission(8, clock)
    reclaimed: list[int] = []

    def reclaim() -> bool:
        reclaimed.append(admission.in_use)
        admission.release(Lane.BATCH)
        return True

    admission.reclaim = reclaim
    clock.now_s += QUIET_AFTER_S + 1.0
    assert admission.try_stand_by()
    admission.try_acquire(Lane.BATCH, 1000)
    admission.begin()
    assert reclaimed == [9]
    assert (admission.held(Lane.REALTIME), admission.held(Lane.BATCH)) == (1, 7)
    assert admission.kept == 1


def test_a_request_that_begins_in_a_free_place_takes_none_from_work() -> None:
    admission = Admission(8)
    admission.reclaim = lambda: pytest.fail("work was asked for a place")
    assert admission.try_stand_by()
    admission.try_acquire(Lane.BATCH, 1000)
    admission.begin()


def test_the_quiet_begins_when_the_last_realtime_request_ends() -> None:
    clock = Clock()
    admission = Admission(8, clock)
    admission.try_acquire(Lane.REALTIME, 1)
    clock.now_s += QUIET_AFTER_S + 1.0
    assert admission.room(Lane.BATCH) == 6
    admission.release(Lane.REALTIME)
    clock.now_s += QUIET_AFTER_S - 1.0
    assert admission.room(Lane.BATCH) == 7
    clock.now_s += 2.0
    assert admission.room(Lane.BATCH) == 8
