"""What is told of batches and of what waits in the database."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from gateway.live.reading import Reader
from gateway.live.work import Found, OpenBatch, Waiting, Work, read_work
from jobs.models import Batch
from jobs.work.backlog import Backlog

NOW = timezone.now()
NOW_S = NOW.timestamp()


def backlog(**fields: Any) -> Backlog:
    known: dict[str, Any] = {
        "pending": Counter(),
        "running": Counter(),
        "oldest": {},
        "batches": Counter(),
    }
    return Backlog(**(known | fields))


def batch(**fields: Any) -> OpenBatch:
    known: dict[str, Any] = {
        "id": "b",
        "team_name": "blue",
        "model": "m",
        "form": "openai",
        "status": "in_progress",
        "total": 1000,
        "completed": 0,
        "failed": 0,
        "cancelled": 0,
        "expired": 0,
        "created_at": NOW - timedelta(hours=1),
        "in_progress_at": NOW - timedelta(minutes=50),
        "expires_at": NOW + timedelta(hours=23),
    }
    return OpenBatch(**(known | fields))


def look(source: Work, after_s: float, **fields: Any) -> dict[str, Any]:
    """Let a source see one batch, and return what it tells of it."""
    source.see(Found(backlog(), [batch(**fields)]), NOW_S + after_s)
    told: dict[str, Any] = json.loads(source.parts["batch/b"])
    return told


def test_a_batch_is_told_with_what_has_ended_of_it() -> None:
    told = look(Work(Reader()), 0, completed=3, failed=1, cancelled=2, expired=4)
    assert (told["team"], told["total"], told["ended"], told["failed"]) == ("blue", 1000, 10, 1)
    assert told["expires_at_s"] == round(NOW_S + 23 * 3600)


def test_at_first_the_forecast_is_by_the_pace_since_it_began() -> None:
    """100 rows in 50 minutes: the other 900 take 450."""
    told = look(Work(Reader()), 0, completed=100)
    assert told["forecast_s"] == pytest.approx(NOW_S + 450 * 60, abs=10)


def test_then_it_is_by_the_pace_of_the_last_minutes() -> None:
    """A row a second."""
    source = Work(Reader())
    for seconds in range(0, 601, 10):
        told = look(source, seconds, completed=100 + seconds)
    assert told["forecast_s"] == pytest.approx(NOW_S + 600 + 300, abs=10)


def test_what_has_not_moved_has_no_forecast() -> None:
    assert look(Work(Reader()), 0)["forecast_s"] is None
    assert look(Work(Reader()), 0, status="validating", in_progress_at=None)["forecast_s"] is None


def test_queues_are_told_by_lane() -> None:
    source = Work(Reader())
    found = backlog(
        pending=Counter({("m", "batch"): 5, ("n", "batch"): 1, ("m", "background"): 2}),
        running=Counter({("m", "batch"): 3}),
        oldest={("m", "batch"): NOW - timedelta(seconds=9), ("n", "batch"): NOW},
        batches=Counter({("openai", "in_progress"): 2, ("anthropic", "validating"): 1}),
    )
    source.see(Found(found, []), NOW_S)
    assert json.loads(source.parts["queue/batch"]) == {
        "waiting": 6,
        "since_s": NOW_S - 9,
        "running": 3,
    }
    assert json.loads(source.parts["queue/background"])["waiting"] == 2
    assert json.loads(source.parts["batch"]) == {"open": 3}
    assert source.waiting == {"m": Waiting(5, 2), "n": Waiting(1, 0)}


@pytest.mark.django_db
def test_open_batches_are_read_those_first_whose_windows_end_first() -> None:
    for hours, status in (
        (3, "in_progress"),
        (1, "validating"),
        (2, "completed"),
        (4, "cancelling"),
    ):
        Batch.objects.create(
            id=uuid.UUID(int=hours),
            form="openai",
            team_id=1,
            key_id=uuid.uuid4(),
            endpoint="/v1/chat/completions",
            status=status,
            expires_at=NOW + timedelta(hours=hours),
        )
    found = read_work(2)
    assert [uuid.UUID(each.id).int for each in found.batches] == [1, 3]
    assert sum(found.backlog.batches.values()) == 3
