"""What is said to be not well, and what is not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.live.alerts import Alert, Facts, of_balances, of_batches, of_service
from gateway.live.engines import Lost, ModelState
from gateway.live.traffic import Failures, Latency
from gateway.live.usage import Short
from gateway.live.work import BatchState, Waiting
from inference.transport.frames import EngineState
from tests.unit.gateway.live.engine_reports import NOW_S, report

BATCH_ID = "0198c5a0-0000-7000-8000-000000000001"
WELL = Facts(
    now_s=NOW_S,
    states=(
        ModelState(
            id="m",
            upstream="",
            engines={"ready": 1},
            first_token_target_s=0.5,
            between_tokens_target_s=0.05,
        ),
    ),
    reports=(report(),),
)


def found(**fields: Any) -> list[Alert]:
    return of_service(msgspec.structs.replace(WELL, **fields))


def one(alerts: list[Alert]) -> tuple[str, str]:
    (alert,) = alerts
    assert alert.advice
    return alert.kind, alert.level


def unserved(**engines: int) -> tuple[ModelState, ...]:
    return (msgspec.structs.replace(WELL.states[0], engines=engines),)


def test_nothing_is_said_when_all_is_well() -> None:
    assert of_service(WELL) == []
    assert of_service(Facts(now_s=NOW_S)) == []


def test_a_model_without_an_engine_is_not_served() -> None:
    assert one(found(states=unserved(), reports=())) == ("no_engine", "critical")
    (alert,) = found(states=unserved(), reports=())
    assert alert.text == "No engine serves m: callers get 503."
    assert (alert.link, alert.about) == ("/admin/engines/#unserved", "m")


@pytest.mark.parametrize(
    ("waiting", "said"),
    [
        ({"m": Waiting(0, 0), "n": Waiting(5, 5)}, "callers get 503."),
        ({"m": Waiting(1, 0)}, "503, and 1 row of batches waits for it."),
        ({"m": Waiting(0, 2)}, "503, and 2 background responses wait for it."),
        (
            {"m": Waiting(1200, 1), "": Waiting(3, 0)},
            "503, and at least 1,200 rows of batches and 1 background response wait for it.",
        ),
    ],
)
def test_what_waits_for_a_missing_engine_is_counted(waiting: dict[str, Waiting], said: str) -> None:
    (alert,) = found(states=unserved(), reports=(), waiting=waiting)
    assert alert.text.endswith(said)


def test_the_way_to_a_model_is_right_whatever_its_id_has_in_it() -> None:
    """Django reads `_3B` in the address of a row as a semicolon."""
    failed = report(model="llama_3B", state=EngineState.FAILED)
    (alert,) = found(reports=(failed,))
    assert alert.link == "/admin/inference/model/llama_5F3B/change/"


def test_an_engine_that_loads_is_waited_for() -> None:
    assert found(states=unserved(loading=1)) == []


def test_a_missing_engine_is_told_once_it_has_been_silent_for_a_while() -> None:
    assert found(lost=(Lost(report(), NOW_S - 1),)) == []
    lost = found(lost=(Lost(report(), NOW_S - 60),))
    assert one(lost) == ("engine_missing", "warning")
    assert lost[0].since_s == int(NOW_S) - 60


def test_the_last_engine_that_is_missing_is_worse() -> None:
    alerts = found(lost=(Lost(report(), NOW_S - 60),), states=unserved(), reports=())
    assert [(alert.kind, alert.level) for alert in alerts] == [
        ("no_engine", "critical"),
        ("engine_missing", "critical"),
    ]


def test_an_engine_that_failed_says_why() -> None:
    failed = report("f", state=EngineState.FAILED, reason='canary failed: expected "Paris"')
    alerts = found(reports=(report(), failed))
    assert one(alerts) == ("engine_failed", "warning")
    assert "canary failed" in alerts[0].text


@pytest.mark.parametrize(
    ("failed", "ended", "level"),
    [(4, 10, None), (5, 100, None), (6, 100, "warning"), (51, 100, "critical")],
)
def test_errors_are_told_from_a_share_on(failed: int, ended: int, level: str | None) -> None:
    failures = Failures(model="a/m", failed=failed, ended=ended, kind="timeout")
    alerts = found(failures=(failures,))
    assert [alert.level for alert in alerts] == ([level] if level else [])
    if alerts:
        assert alerts[0].link.startswith(
            "/admin/jobs/requestrecord/?status__exact=failed&model=a%2Fm"
        )


@pytest.mark.parametrize(
    ("first_s", "between_s", "requests", "lane", "is_slow"),
    [
        (0.6, 0.01, 20, "realtime", True),
        (0.1, 0.06, 20, "realtime", True),
        (0.1, 0.01, 20, "realtime", False),
        (0.6, 0.06, 19, "realtime", False),
        (9.0, 9.0, 100, "flex", False),
        (0.1, None, 20, "realtime", False),
    ],
)
def test_targets_that_are_missed_are_told(
    first_s: float, between_s: float | None, requests: int, lane: str, is_slow: bool
) -> None:
    latency = Latency(
        model="m",
        lane=lane,
        requests=requests,
        first_token=[0.01, first_s, first_s],
        between_tokens=[0.001, between_s, between_s],
    )
    assert [alert.kind for alert in found(latencies=(latency,))] == (["slow"] if is_slow else [])


def test_records_that_are_not_written_down_are_told() -> None:
    assert found(records_since_s=NOW_S - 5) == []
    assert one(found(records_since_s=NOW_S - 15)) == ("clerk_behind", "critical")
    assert one(found(records_dead=2)) == ("dead_records", "warning")


def test_a_clerk_is_not_blamed_for_what_redis_does_not_say() -> None:
    alert = found(records_since_s=NOW_S - 15, away=("redis",))
    assert one(alert) == ("away", "critical")


def test_what_does_not_answer_is_told_once() -> None:
    alerts = found(away=("database", "database", "redis"))
    assert [alert.text for alert in alerts] == [
        "The database does not answer.",
        "Redis does not answer.",
    ]


def batch(**fields: Any) -> BatchState:
    known: dict[str, Any] = {
        "id": BATCH_ID,
        "team": "blue",
        "model": "m",
        "form": "openai",
        "status": "in_progress",
        "total": 100,
        "ended": 10,
        "failed": 0,
        "created_at_s": int(NOW_S) - 3600,
        "expires_at_s": int(NOW_S) + 3600,
        "forecast_s": int(NOW_S) + 600,
    }
    return BatchState(**(known | fields))


@pytest.mark.parametrize(
    ("fields", "is_late"),
    [
        ({}, False),
        ({"forecast_s": int(NOW_S) + 3601}, True),
        ({"forecast_s": None}, False),
        ({"forecast_s": None, "created_at_s": int(NOW_S) - 20_000}, True),
        ({"forecast_s": None, "created_at_s": int(NOW_S) - 20_000, "ended": 100}, False),
    ],
)
def test_batches_that_will_be_late_are_told(fields: dict[str, Any], is_late: bool) -> None:
    alerts = of_batches([batch(**fields)], NOW_S)
    assert bool(alerts) == is_late
    if is_late:
        assert one(alerts) == ("deadline", "warning")
        assert BATCH_ID in alerts[0].link


def test_an_alert_that_stands_is_the_same_a_second_later() -> None:
    late = [batch(forecast_s=int(NOW_S) + 9999)]
    assert of_batches(late, NOW_S) == of_batches(late, NOW_S + 1)
    lost = {"lost": (Lost(report(), NOW_S - 60),), "records_since_s": NOW_S - 60}
    assert found(**lost) == found(**lost, now_s=NOW_S + 1)


def test_balances_are_told_those_that_are_used_up_first() -> None:
    alerts = of_balances([Short(1, "blue", 1_500_000, 2_000_000), Short(2, "red", 0, 5)])
    assert [(alert.level, alert.link) for alert in alerts] == [
        ("critical", "/admin/gateway/team/2/change/"),
        ("warning", "/admin/gateway/team/1/change/"),
    ]
    assert "1.50" in alerts[1].text
