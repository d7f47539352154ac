"""What happened to a request, and when."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from gateway.admin.screens.timeline import moments_of, moments_of_work, phases_of
from jobs.models import RequestRecord, Work

NOON = datetime(2026, 8, 7, 12, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def record(**fields: Any) -> RequestRecord:
    return RequestRecord(created_at=NOON, **fields)


def phases(row: RequestRecord, now: float = 100) -> list[tuple[str, float, int, int]]:
    return [
        (phase.kind, phase.seconds, phase.x, phase.width) for phase in phases_of(row, after(now))
    ]


def test_moments_come_in_the_order_of_time_and_only_those_that_were() -> None:
    row = record(taken_at=after(0.5), engine_ended_at=after(2), closed_at=after(1.5))
    assert [(moment.name, moment.after_s) for moment in moments_of(row)] == [
        ("admitted", 0),
        ("taken by the engine", 0.5),
        ("answer ended", 1.5),
        ("ended by the engine", 2),
    ]


def test_a_request_s_time_is_waiting_reading_and_answering() -> None:
    row = record(taken_at=after(1), first_token_at=after(2), engine_ended_at=after(4))
    assert phases(row) == [
        ("waited", 1, 0, 250),
        ("read", 1, 250, 250),
        ("answered", 2, 500, 500),
    ]


def test_what_has_not_ended_lasts_until_now() -> None:
    assert phases(record(), now=3) == [("waited", 3, 0, 1000)]
    assert phases(record(taken_at=after(1)), now=2) == [
        ("waited", 1, 0, 500),
        ("read", 1, 500, 500),
    ]


def test_a_request_that_no_engine_took_only_waited() -> None:
    assert phases(record(closed_at=after(600))) == [("waited", 600, 0, 1000)]


def test_a_phase_that_is_too_short_to_be_seen_is_drawn() -> None:
    row = record(taken_at=after(0.0001), first_token_at=after(9.9999), engine_ended_at=after(10))
    for _, _, x, width in phases(row):
        assert width >= 2
        assert x <= 998


def test_clocks_that_differ_make_no_negative_time() -> None:
    row = record(taken_at=after(-0.5), first_token_at=after(1), engine_ended_at=after(0.9))
    assert all(seconds >= 0 for _, seconds, _, _ in phases(row))
    assert phases(record(closed_at=NOON)) == [("waited", 0, 0, 2)]


def test_work_tells_its_moments_before_the_trail_does() -> None:
    work = Work(created_at=NOON, taken_at=after(5), ended_at=after(7))
    assert [(moment.name, moment.after_s) for moment in moments_of_work(work)] == [
        ("accepted", 0),
        ("taken by an engine", 5),
        ("ended", 7),
    ]
