"""Usage by day and in sum, and what it cost."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from gateway.keys import mint
from jobs.models import Price, UsageDay
from tests.unit.gateway.control.conftest import Caller

pytestmark = pytest.mark.django_db

COUNTS = {
    "requests": 1,
    "prompt_tokens": 10,
    "cached_prompt_tokens": 4,
    "cache_write_prompt_tokens": 2,
    "completion_tokens": 5,
    "total_tokens": 15,
    "cost_micros": 42,
}


def today() -> date:
    return datetime.now(UTC).date()


def use(caller: Caller, days_ago: int = 0, **fields: Any) -> None:
    empty: dict[str, Any] = {
        "team_id": caller.team.id,
        "key_id": caller.key.id,
        "day": today() - timedelta(days=days_ago),
        "model": "tiny",
        "lane": "realtime",
        "requests": 1,
        "input_tokens": 10,
        "cached_tokens": 4,
        "cache_written_tokens": 2,
        "output_tokens": 5,
        "cost_micros": 42,
    }
    UsageDay.objects.create(**(empty | fields))


def times(count: int) -> dict[str, int]:
    return {name: value * count for name, value in COUNTS.items()}


def test_every_day_is_listed_oldest_first_and_the_sums_are_whole_numbers(caller: Caller) -> None:
    use(caller)
    use(caller, days_ago=2)
    use(caller, days_ago=2, lane="batch")
    use(caller, days_ago=3)
    answer = caller.get("usage/daily", days=3).json()
    assert answer["days"] == 3
    assert [item.pop("date") for item in answer["items"]] == [
        str(today() - timedelta(days=days_ago)) for days_ago in (2, 1, 0)
    ]
    assert answer["items"] == [times(2), times(0), times(1)]


def test_thirty_days_are_shown_unless_it_is_said(caller: Caller) -> None:
    assert len(caller.get("usage/daily").json()["items"]) == 30


@pytest.mark.parametrize("path", ["usage/daily", "usage/summary", "billing/summary"])
@pytest.mark.parametrize("days", ["0", "366", "x"])
def test_a_year_is_the_most(caller: Caller, path: str, days: str) -> None:
    response = caller.get(path, days=days)
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith("days: ")


def test_usage_is_narrowed_to_a_key_an_owner_and_a_model(caller: Caller) -> None:
    colleague = Caller(mint("phone", "blue", owner="bob"))
    use(colleague, model="other")
    use(caller)
    use(caller, days_ago=1)
    for query, count in (
        ({}, 3),
        ({"key_id": colleague.key.id}, 1),
        ({"user_id": "bob"}, 1),
        ({"user_id": "ann"}, 2),
        ({"user_id": "nobody"}, 0),
        ({"model": "other"}, 1),
        ({"model": "other", "user_id": "ann"}, 0),
    ):
        assert caller.get("usage/summary", **query).json()["totals"] == times(count), query
        items = caller.get("usage/daily", **query).json()["items"]
        assert sum(item["requests"] for item in items) == count


def test_the_summary_splits_by_model_and_tier_the_dearest_first(caller: Caller) -> None:
    use(caller, model="cheap", cost_micros=1)
    use(caller)
    use(caller, days_ago=1)
    use(caller, lane="flex", cost_micros=21)
    by_model = caller.get("usage/summary").json()["by_model"]
    assert [(one["model"], one["service_tier"], one["cost_micros"]) for one in by_model] == [
        ("tiny", "realtime", 84),
        ("tiny", "flex", 21),
        ("cheap", "realtime", 1),
    ]


def test_the_bill_shows_credit_cost_and_the_prices_in_force(caller: Caller) -> None:
    use(caller)
    use(caller, lane="batch", model="free")
    for day, output in ((1, 10), (5, 15), (9_000, 99)):
        Price.objects.create(
            model="tiny",
            effective_from=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=day),
            input_micros_per_mtok=3,
            cached_input_micros_per_mtok=2,
            cache_write_micros_per_mtok=4,
            output_micros_per_mtok=output,
        )
    caller.send("POST", "billing/topups?nonce=a", {"amount_micros": 1_000})
    bill = caller.get("billing/summary").json()
    assert bill["credit_balance_micros"] == 1_000
    assert bill["estimated_cost_micros"] == 84
    assert bill["totals"] == times(2)
    prices = {one["model"]: one["price"] for one in bill["by_model"]}
    assert prices["free"] is None
    assert prices["tiny"] == {
        "effective_from": "2026-01-06T00:00:00Z",
        "input_micros_per_mtok": 3,
        "cached_input_micros_per_mtok": 2,
        "cache_write_micros_per_mtok": 4,
        "output_micros_per_mtok": 15,
        "factor_permille": 1000,
    }


def test_no_report_tells_of_another_team(caller: Caller, stranger: Caller) -> None:
    use(caller)
    caller.send("POST", "billing/topups?nonce=a", {"amount_micros": 1_000})
    for query in ({}, {"key_id": caller.key.id}, {"user_id": "ann"}):
        assert stranger.get("usage/summary", **query).json()["totals"] == times(0)
        items = stranger.get("usage/daily", **query).json()["items"]
        assert not any(item["requests"] for item in items)
    bill = stranger.get("billing/summary").json()
    assert (bill["credit_balance_micros"], bill["totals"]) == (0, times(0))


def test_reports_take_a_fixed_number_of_queries(
    caller: Caller, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(5):
        use(caller, days_ago=number, model=f"model {number}", key_id=uuid.uuid4())
    for path, count in (("usage/daily", 2), ("usage/summary", 2), ("billing/summary", 4)):
        with django_assert_num_queries(count):
            assert caller.get(path).status_code == 200
