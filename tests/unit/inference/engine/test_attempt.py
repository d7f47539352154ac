"""What is recorded of an attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest
from msgspec.structs import replace

from inference.engine.attempt import Attempt
from inference.engine.work_attempt import WorkAttempt
from inference.events import Finished, FinishReason, Usage
from inference.transport.frames import CancelReason, QueueEntry
from tests.contracts.requests import make_request
from tests.engine_host import OWNER
from tests.work_source import make_item

USAGE = Usage(prompt_tokens=9, cached_tokens=4, cache_written_tokens=2, output_tokens=3)


@pytest.mark.parametrize(
    ("choice", "shares_prompt", "counts"), [(0, True, True), (1, True, False), (1, False, True)]
)
def test_of_answers_that_share_a_prompt_only_the_first_counts_it(
    choice: int, shares_prompt: bool, counts: bool
) -> None:
    request = replace(make_request(), owner=OWNER, choice=choice, shares_prompt=shares_prompt)
    attempt = Attempt(QueueEntry(gateway_id="g1", attempt=0, request=request), 0)
    attempt.confirmed()
    attempt.next_seq(Finished(reason=FinishReason.END, usage=USAGE))
    record = attempt.record("e1")
    assert record is not None
    assert record.usage == (
        USAGE if counts else Usage(prompt_tokens=0, cached_tokens=0, output_tokens=3)
    )


def test_what_a_broken_off_answer_used_is_all_that_was_counted() -> None:
    request = replace(make_request(), owner=OWNER)
    attempt = Attempt(QueueEntry(gateway_id="g1", attempt=0, request=request), 0)
    attempt.confirmed()
    for name in USAGE.__struct_fields__[:-1]:
        setattr(attempt.tally, name, getattr(USAGE, name))
    record = attempt.record("e1")
    assert record is not None
    assert record.usage == USAGE


def _realtime() -> Attempt:
    return Attempt(QueueEntry(gateway_id="g1", attempt=0, request=make_request()), 0)


def _work() -> WorkAttempt:
    return WorkAttempt(make_item())


def _break_off(attempt: Attempt | WorkAttempt) -> None:
    if isinstance(attempt, Attempt):
        attempt.cancel(CancelReason.CLIENT_LEFT)
    else:
        attempt.preempt()


@pytest.mark.parametrize("make", [_realtime, _work])
async def test_what_is_broken_off_ends_though_a_timeout_within_it_strikes_just_then(
    make: Callable[[], Attempt | WorkAttempt],
) -> None:
    async def run() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        await asyncio.Event().wait()

    attempt = make()
    attempt.task = asyncio.create_task(run())
    while not attempt.task.cancelling():  # noqa: ASYNC110 (of that a task tells nobody)
        await asyncio.sleep(0)
    _break_off(attempt)
    await asyncio.wait([attempt.task], timeout=10)
    assert attempt.task.cancelled()


@pytest.mark.parametrize("make", [_realtime, _work])
async def test_a_second_word_does_not_break_off_the_cleaning_up(
    make: Callable[[], Attempt | WorkAttempt],
) -> None:
    cleaned = asyncio.Event()

    async def run() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.set()

    attempt = make()
    attempt.task = asyncio.create_task(run())
    await asyncio.sleep(0)
    _break_off(attempt)
    await asyncio.sleep(0)
    _break_off(attempt)
    await asyncio.wait([attempt.task], timeout=10)
    assert cleaned.is_set()
