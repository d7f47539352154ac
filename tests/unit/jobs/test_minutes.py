"""What is read of minutes, and what goes when it is old."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from jobs import minutes
from jobs.models import LatencyMinute, RequestMinute

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 8, 7, 12, 0, tzinfo=UTC)
AGO = NOW - timedelta(minutes=5)


def make(minute: datetime = NOW, **fields: object) -> None:
    row = {"team_id": 1, "model": "m", "lane": "realtime", "outcome": "completed", "requests": 1}
    RequestMinute.objects.create(minute=minute, **(row | fields))


def make_times(minute: datetime = NOW) -> None:
    LatencyMinute.objects.create(
        minute=minute, model="m", lane="realtime", first_token=[1, 2], between_tokens=[3, 4]
    )


def test_teams_are_added_up_and_nothing_else_is() -> None:
    make(input_tokens=5, output_tokens=7)
    make(team_id=2, requests=3, input_tokens=10)
    make(outcome="timeout")
    make(lane="batch")
    make(model="n")
    make(AGO)
    found = minutes.sums_since(AGO)
    assert [each.minute for each in found] == [AGO, NOW, NOW, NOW, NOW]
    (both,) = (each for each in found if each.requests > 1)
    assert (both.requests, both.input_tokens, both.output_tokens) == (4, 15, 7)
    assert {(each.lane, each.model, each.outcome) for each in found[1:]} == {
        ("realtime", "m", "completed"),
        ("realtime", "m", "timeout"),
        ("batch", "m", "completed"),
        ("realtime", "n", "completed"),
    }


def test_what_is_older_is_not_read() -> None:
    make(AGO)
    make_times(AGO)
    assert minutes.sums_since(NOW) == []
    assert minutes.times_since(NOW) == []
    (times,) = minutes.times_since(AGO)
    assert (times.minute, times.model, times.first_token, times.between_tokens) == (
        AGO,
        "m",
        [1, 2],
        [3, 4],
    )


def test_what_is_old_goes_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minutes, "_AT_ONCE", 2)
    for number in range(5):
        make(AGO - timedelta(minutes=number))
    make_times(AGO)
    make()
    make_times()
    assert list(minutes.prune(NOW)) == [2, 2, 1, 1]
    assert RequestMinute.objects.get().minute == NOW
    assert LatencyMinute.objects.get().minute == NOW
