"""What is decided about work without looking at anything but it."""

from __future__ import annotations

from inference.errors import ErrorCode
from inference.request import Lane
from jobs.work import policy


def test_a_background_response_runs_before_a_batch_and_what_is_urgent_before_both() -> None:
    ranks = [policy.URGENT_RANK, policy.rank(Lane.BACKGROUND), policy.rank(Lane.BATCH)]
    assert ranks == sorted(set(ranks))


def test_a_row_runs_alone_after_three_deaths_and_never_after_four() -> None:
    assert [policy.runs_alone(deaths) for deaths in range(5)] == [False, False, False, True, True]
    assert [policy.is_poison(deaths) for deaths in range(5)] == [False] * 4 + [True]


def test_what_is_the_rows_own_fault_is_final_and_what_may_pass_is_tried_thrice() -> None:
    assert policy.is_final(ErrorCode.PROMPT_TOO_LONG, 1)
    assert policy.is_final(ErrorCode.INVALID_REQUEST, 1)
    assert [policy.is_final(ErrorCode.INTERNAL, attempts) for attempts in (1, 2, 3)] == [
        False,
        False,
        True,
    ]


def test_pauses_grow_to_a_bound() -> None:
    pauses = [policy.pause_after(faults).total_seconds() for faults in range(8)]
    assert pauses == [1, 1, 2, 4, 8, 16, 16, 16]
