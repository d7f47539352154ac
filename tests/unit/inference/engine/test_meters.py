"""What is measured of attempts that are over."""

from __future__ import annotations

from inference.admission import Admission
from inference.backends.port import Tally
from inference.engine.meters import Measured, Meters
from inference.pace_stats import PaceStats
from inference.request import Lane
from inference.transport.figures import (
    PACE_BOUNDS_S,
    WAIT_BOUNDS_S,
    Attainment,
    Histogram,
    LaneFigures,
)

PACE = PaceStats(itl_target_s=0.25, ttft_target_s=1.0, idle_itl_s=0.125, idle_ttft_s=0.5)


def attempt(
    *,
    lane: Lane = Lane.REALTIME,
    queued_at_s: float | None = 99.5,
    first_token_at_s: float | None = 100.25,
    ended_at_s: float = 101.25,
    tokens: tuple[int, int] = (1, 5),
) -> Measured:
    """Return an attempt that was taken at 100 s. `tokens`: those of the first event, and all."""
    tally = Tally()
    tally.prompt_tokens, tally.cached_tokens = 10, 4
    first_tokens, tally.output_tokens = tokens
    return Measured(
        lane=lane,
        queued_at_s=queued_at_s,
        taken_at_s=100.0,
        first_token_at_s=first_token_at_s,
        first_tokens=first_tokens,
        ended_at_s=ended_at_s,
        tally=tally,
    )


def of_lane(meters: Meters, lane: Lane = Lane.REALTIME) -> LaneFigures:
    """Return what a lane has come to."""
    return meters.lanes([lane], Admission(8))[lane]


def bucket(histogram: Histogram, bounds_s: tuple[float, ...]) -> float:
    """Return the upper bound of the only bucket that has something in it."""
    (place,) = [place for place, count in enumerate(histogram.counts) if count]
    return (*bounds_s, float("inf"))[place]


def test_an_attempt_counts_once_in_its_lane() -> None:
    meters = Meters()
    meters.count(attempt())
    meters.count(attempt(lane=Lane.FLEX))
    done = of_lane(meters)
    assert (done.input_tokens, done.cached_tokens, done.output_tokens) == (10, 4, 5)
    assert (done.queue_time.sum_s, done.time_to_first_token.sum_s) == (0.5, 0.25)
    assert done.time_per_output_token.sum_s == 0.25
    assert bucket(done.queue_time, WAIT_BOUNDS_S) == 0.512
    assert bucket(done.time_to_first_token, WAIT_BOUNDS_S) == 0.256
    assert bucket(done.time_per_output_token, PACE_BOUNDS_S) == 0.256
    assert of_lane(meters, Lane.BATCH) == LaneFigures()


def test_a_bound_is_within_its_bucket_and_the_last_bucket_has_none() -> None:
    meters = Meters()
    meters.count(attempt()._replace(queued_at_s=0.0, taken_at_s=1.024))
    meters.count(attempt()._replace(queued_at_s=0.0, taken_at_s=600.0))
    counts = of_lane(meters).queue_time.counts
    assert len(counts) == len(WAIT_BOUNDS_S) + 1
    assert (counts[WAIT_BOUNDS_S.index(1.024)], counts[-1], sum(counts)) == (1, 1, 2)


def test_a_clock_that_is_ahead_makes_no_wait_of_less_than_nothing() -> None:
    meters = Meters()
    meters.count(attempt(queued_at_s=100.1))
    waited = of_lane(meters).queue_time
    assert (waited.counts[0], waited.sum_s) == (1, 0)


def test_what_waits_in_the_database_has_no_time_in_a_queue() -> None:
    meters = Meters()
    meters.count(attempt(lane=Lane.BATCH, queued_at_s=None))
    done = of_lane(meters, Lane.BATCH)
    assert done.queue_time == Histogram()
    assert sum(done.time_to_first_token.counts) == 1


def test_the_pace_is_that_of_the_tokens_after_the_first_event() -> None:
    meters = Meters()
    meters.count(attempt(tokens=(4, 6)))
    assert of_lane(meters).time_per_output_token.sum_s == 0.5
    meters.count(attempt(tokens=(6, 6)))
    assert sum(of_lane(meters).time_per_output_token.counts) == 1


def test_an_attempt_without_a_token_has_no_times_of_any() -> None:
    meters = Meters()
    meters.count(attempt(first_token_at_s=None, tokens=(0, 0)))
    done = of_lane(meters)
    assert done.time_to_first_token == done.time_per_output_token == Histogram()


def test_permits_are_those_that_are_held() -> None:
    admission = Admission(8)
    admission.try_acquire(Lane.BATCH, 3)
    figures = Meters().lanes(Lane, admission)
    assert {lane: done.permits for lane, done in figures.items() if done.permits} == {Lane.BATCH: 3}


def test_targets_are_met_or_missed_with_the_time_in_the_queue() -> None:
    meters = Meters()
    # 0.75 s to the first token, and 0.25 s from one to the next.
    meters.count(attempt(), PACE)
    assert meters.attained == Attainment(ttft_met=1, itl_met=1)
    meters.count(attempt(queued_at_s=99.0, ended_at_s=102.0), PACE)
    assert meters.attained == Attainment(ttft_met=1, ttft_missed=1, itl_met=1, itl_missed=1)


def test_who_leaves_before_the_first_token_has_missed_it_only_when_it_was_due() -> None:
    meters = Meters()
    meters.count(attempt(first_token_at_s=None, ended_at_s=100.25, tokens=(0, 0)), PACE)
    assert meters.attained == Attainment()
    meters.count(attempt(first_token_at_s=None, ended_at_s=100.75, tokens=(0, 0)), PACE)
    assert meters.attained == Attainment(ttft_missed=1)


def test_only_realtime_has_targets_and_only_where_there_are_any() -> None:
    meters = Meters()
    meters.count(attempt(lane=Lane.FLEX), PACE)
    meters.count(attempt())
    assert meters.attained == Attainment()
