"""What is told of spend and usage."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.utils import timezone

from gateway.live.reading import Reader
from gateway.live.usage import DaySums, Purse, Usage, add_up, read_purses, read_spend
from gateway.models import Team
from jobs import ledger
from jobs.models import UsageDay

TODAY = date(2026, 8, 7)
TEAMS = {1: Purse("blue", None), 2: Purse("red", None)}


def day(days_ago: int, cost: int, team_id: int = 1, model: str = "m") -> DaySums:
    sums = {"requests": 1, "input_tokens": 10, "output_tokens": 2, "cost_micros": cost}
    return DaySums(TODAY - timedelta(days=days_ago), team_id, model, Counter(sums))


def seen(*days: DaySums, purses: dict[int, Purse] = TEAMS) -> Usage:
    source = Usage(Reader())
    past = add_up((each for each in days if each.day < TODAY), TODAY)
    source.see(past, add_up((each for each in days if each.day == TODAY), TODAY), purses)
    return source


def window(source: Usage, name: str) -> Any:
    return json.loads(source.parts[f"usage/{name}"])


def test_windows_have_the_days_that_they_are_named_by() -> None:
    source = seen(*(day(ago, 10**ago if ago < 2 else 0) for ago in range(40)))
    for name, requests, cost in (
        ("today", 1, 1),
        ("yesterday", 1, 10),
        ("week", 7, 11),
        ("month", 30, 11),
    ):
        total = window(source, name)["total"]
        assert (total["requests"], total["cost_micros"]) == (requests, cost)


def test_teams_and_models_are_listed_by_what_they_cost() -> None:
    source = seen(day(0, 5), day(0, 7, team_id=2, model="n"), day(0, 1, team_id=9, model="n"))
    today = window(source, "today")
    assert [(each["name"], each["id"], each["cost_micros"]) for each in today["teams"]] == [
        ("red", 2, 7),
        ("blue", 1, 5),
        ("team 9, deleted", None, 1),
    ]
    assert [(each["name"], each["cost_micros"]) for each in today["models"]] == [("n", 8), ("m", 5)]


def test_those_that_cost_least_share_a_line() -> None:
    purses = {number: Purse(f"team {number}", None) for number in range(30)}
    source = seen(*(day(0, 100 - number, team_id=number) for number in range(30)), purses=purses)
    teams = window(source, "today")["teams"]
    assert len(teams) == 21
    assert (teams[-1]["name"], teams[-1]["id"], teams[-1]["requests"]) == ("10 others", None, 10)
    assert (
        sum(team["cost_micros"] for team in teams)
        == window(source, "today")["total"]["cost_micros"]
    )


@pytest.mark.parametrize(
    ("balance", "costs", "is_short"),
    [
        (None, [100] * 7, False),
        (1000, [100] * 7, False),
        (100, [100] * 7, False),
        (99, [100] * 7, True),
        (99, [100] + [0] * 6, True),
        (-5, [0] * 6 + [1], True),
        (0, [0] * 7, False),
    ],
)
def test_a_balance_is_short_if_it_does_not_last_a_usual_day(
    balance: int | None, costs: list[int], is_short: bool
) -> None:
    days = [day(ago, cost) for ago, cost in enumerate(costs)]
    source = seen(*days, purses={1: Purse("blue", balance)})
    assert [short.team_id for short in source.short] == ([1] if is_short else [])


class Remembering(Reader):
    """Finds nothing, and remembers which days it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[date, date]] = []

    async def read(self, call: Callable[[], Any]) -> Any:
        if call is read_purses:
            return {}
        assert isinstance(call, partial)
        first, last, today = call.args
        self.asked.append((first, last))
        return add_up([], today)


async def test_days_that_are_over_are_read_now_and_then_and_when_a_day_ends() -> None:
    reader = Remembering()
    source = Usage(reader)
    evening = datetime(2026, 8, 7, 23, 59, 50, tzinfo=UTC)
    for now in (evening - timedelta(seconds=605), evening - timedelta(seconds=10), evening):
        await source.look(now)
    today, before = (TODAY, TODAY), (TODAY - timedelta(days=29), TODAY - timedelta(days=1))
    assert reader.asked == [before, today, today, before, today]
    reader.asked.clear()
    await source.look(evening + timedelta(seconds=15))
    assert reader.asked == [
        tuple(day + timedelta(days=1) for day in each) for each in (before, today)
    ]


@pytest.mark.django_db
def test_usage_and_balances_are_read() -> None:
    today = timezone.now().date()
    prepaid = Team.objects.create(name="prepaid", prepaid=True)
    free = Team.objects.create(name="free")
    for ago, key in ((0, 1), (0, 2), (1, 1), (40, 1)):
        UsageDay.objects.create(
            team_id=free.pk,
            key_id=uuid.UUID(int=key),
            day=today - timedelta(days=ago),
            model="m",
            lane="realtime",
            requests=1,
            cost_micros=5,
        )
    ledger.top_up(prepaid.pk, 70)
    spend = read_spend(today - timedelta(days=29), today, today)
    assert {name: each.teams[free.pk]["cost_micros"] for name, each in spend.items()} == {
        "today": 10,
        "yesterday": 5,
        "week": 15,
        "month": 15,
    }
    assert spend["week"].models == {"m": spend["week"].teams[free.pk]}
    before = read_spend(today - timedelta(days=29), today - timedelta(days=1), today)
    assert before["week"].teams[free.pk]["cost_micros"] == 5
    assert read_purses() == {prepaid.pk: Purse("prepaid", 70), free.pk: Purse("free", None)}
