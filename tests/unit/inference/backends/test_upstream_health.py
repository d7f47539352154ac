"""When an upstream is asked, asked again, and left alone."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from inference.backends.upstream_health import (
    OPEN_AFTER,
    OPEN_S,
    WINDOW_S,
    CircuitBreaker,
    CircuitOpenError,
    RateLimiter,
    UpstreamError,
    is_patient,
    pause_s,
)
from inference.errors import ErrorCode
from inference.request import Lane


class Clock:
    """Time that passes when somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def error(
    code: ErrorCode = ErrorCode.UNAVAILABLE,
    *,
    passing: bool = True,
    down: bool = True,
    retry_after_s: float | None = None,
) -> UpstreamError:
    return UpstreamError(code, "no", passing=passing, down=down, retry_after_s=retry_after_s)


def test_only_what_may_fare_better_is_tried_again() -> None:
    assert pause_s(error(), tries=1, retries=2, patient=False) is not None
    assert pause_s(error(passing=False), tries=1, retries=2, patient=False) is None


def test_realtime_is_tried_again_as_often_as_the_operator_says() -> None:
    pauses = [pause_s(error(), tries=tries, retries=2, patient=False) for tries in (1, 2, 3)]

    assert [pause is None for pause in pauses] == [False, False, True]
    assert pause_s(error(), tries=1, retries=0, patient=False) is None


def test_pauses_grow_and_stay_bounded() -> None:
    for tries, low, high in [(1, 0.375, 0.5), (3, 1.5, 2), (1000, 6, 8)]:
        pause = pause_s(error(), tries=tries, retries=1000, patient=False)
        assert pause is not None
        assert low <= pause <= high
    patient = pause_s(error(), tries=100_000, retries=0, patient=True)
    assert patient is not None
    assert 45 <= patient <= 60


def test_the_upstreams_wish_counts() -> None:
    assert pause_s(error(retry_after_s=5), tries=1, retries=1, patient=False) == 5
    assert pause_s(error(retry_after_s=500), tries=1, retries=1, patient=True) == 500


def test_nobody_waits_for_minutes_with_a_connection_open() -> None:
    assert pause_s(error(retry_after_s=60), tries=1, retries=1, patient=False) is None


@pytest.mark.parametrize(
    ("code", "waits"),
    [
        (ErrorCode.UNAVAILABLE, True),
        (ErrorCode.RESOURCE_UNAVAILABLE, True),
        (ErrorCode.OVERLOADED, True),
        (ErrorCode.TIMEOUT, True),
        (ErrorCode.INVALID_REQUEST, False),
        (ErrorCode.PROMPT_TOO_LONG, False),
    ],
)
def test_work_waits_for_whatever_is_not_its_own_fault(code: ErrorCode, waits: bool) -> None:
    pause = pause_s(error(code, passing=False), tries=50, retries=0, patient=True)

    assert (pause is not None) == waits


def test_work_that_takes_longer_than_it_may_is_tried_as_often_as_the_operator_says() -> None:
    late = error(ErrorCode.TIMEOUT, passing=False, down=False)
    pauses = [pause_s(late, tries=tries, retries=2, patient=True) for tries in (1, 2, 3)]

    assert [pause is None for pause in pauses] == [False, False, True]


def test_only_work_is_patient() -> None:
    assert [lane for lane in Lane if is_patient(lane)] == [Lane.BACKGROUND, Lane.BATCH]


def fail(breaker: CircuitBreaker, times: int = 1) -> None:
    for _ in range(times):
        with pytest.raises(UpstreamError), breaker.passing():
            raise error()


def test_it_opens_after_failures_in_a_row() -> None:
    breaker = CircuitBreaker(Clock())
    fail(breaker, OPEN_AFTER)

    with pytest.raises(CircuitOpenError, match="failed 5 times in a row") as caught:
        breaker.passing().__enter__()

    assert caught.value.code is ErrorCode.UNAVAILABLE
    assert caught.value.retry_after_s == OPEN_S
    assert not caught.value.passing


def test_an_answer_between_them_forgets_failures() -> None:
    breaker = CircuitBreaker(Clock())
    fail(breaker, OPEN_AFTER - 1)
    with breaker.passing() as passage:
        passage.answered()
    fail(breaker, OPEN_AFTER - 1)

    with breaker.passing():
        pass


def test_a_refusal_is_an_answer_too() -> None:
    breaker = CircuitBreaker(Clock())
    fail(breaker, OPEN_AFTER - 1)
    with suppress(UpstreamError), breaker.passing():
        raise error(down=False)
    fail(breaker)

    with breaker.passing():
        pass


def test_one_request_tries_it_again_and_decides() -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock)
    fail(breaker, OPEN_AFTER)
    clock.now_s += OPEN_S

    with breaker.passing() as passage:
        with pytest.raises(CircuitOpenError):
            breaker.passing().__enter__()
        passage.answered()

        with breaker.passing():
            pass


def test_a_try_that_fails_opens_it_again() -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock)
    fail(breaker, OPEN_AFTER)
    clock.now_s += OPEN_S
    fail(breaker)

    with pytest.raises(CircuitOpenError):
        breaker.passing().__enter__()


def test_a_try_that_is_called_off_leaves_it_to_the_next() -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock)
    fail(breaker, OPEN_AFTER)
    clock.now_s += OPEN_S
    with pytest.raises(asyncio.CancelledError), breaker.passing():
        raise asyncio.CancelledError

    with breaker.passing():
        pass


def test_what_passes_by_decides_nothing() -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock)
    fail(breaker, OPEN_AFTER - 1)
    for _ in range(OPEN_AFTER):
        with suppress(UpstreamError), breaker.passing_by():
            raise error()
    with breaker.passing_by() as passage:
        passage.answered()
    fail(breaker)

    with pytest.raises(CircuitOpenError):
        breaker.passing_by().__enter__()
    clock.now_s += OPEN_S
    with breaker.passing_by(), breaker.passing():
        pass


async def test_no_more_requests_are_sent_than_fit_any_minute() -> None:
    clock = Clock()
    limiter = RateLimiter(3, clock, clock.sleep)
    sent = []
    for _ in range(7):
        await limiter.take(patient=False)
        sent.append(clock.now_s)
        clock.now_s += 1

    assert all(later - earlier >= WINDOW_S for earlier, later in zip(sent, sent[3:], strict=False))
    assert sent[:3] == [1000, 1001, 1002]
    assert sent[3] == 1000 + WINDOW_S


async def test_work_leaves_some_for_realtime() -> None:
    clock = Clock()
    limiter = RateLimiter(8, clock, clock.sleep)
    for _ in range(6):
        await limiter.take(patient=True)
    assert clock.now_s == 1000

    await limiter.take(patient=False)
    await limiter.take(patient=False)
    assert clock.now_s == 1000
    await limiter.take(patient=True)
    assert clock.now_s == 1000 + WINDOW_S


@pytest.mark.parametrize(("per_minute", "for_work"), [(2, 1), (3, 2), (4, 3), (5, 3)])
async def test_however_low_the_limit_is_work_leaves_some(per_minute: int, for_work: int) -> None:
    clock = Clock()
    limiter = RateLimiter(per_minute, clock, clock.sleep)
    for _ in range(for_work):
        await limiter.take(patient=True)
    assert clock.now_s == 1000

    await limiter.take(patient=True)
    assert clock.now_s == 1000 + WINDOW_S


async def test_work_is_sent_however_low_the_limit_is() -> None:
    clock = Clock()
    await RateLimiter(1, clock, clock.sleep).take(patient=True)

    assert clock.now_s == 1000


async def test_without_a_limit_nobody_waits() -> None:
    clock = Clock()
    limiter = RateLimiter(None, clock, clock.sleep)
    for _ in range(1000):
        await limiter.take(patient=True)

    assert clock.now_s == 1000
