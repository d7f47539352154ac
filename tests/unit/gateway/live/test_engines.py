"""What is told of engines and queues, from what one look after the other has found."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from gateway.live.engines import Engines
from gateway.live.heartbeats import Heartbeats, Queue
from inference.pace_stats import PaceStats
from inference.request import Lane
from inference.transport.figures import EngineFigures, LaneFigures
from inference.transport.frames import EngineState
from tests.unit.gateway.live.engine_reports import NOW_S, entry, models, report, sight


def engines(*entries: Any) -> Engines:
    return Engines(cast("Heartbeats", None), models(*(entries or (entry(),))))


def part(source: Engines, name: str) -> dict[str, Any]:
    return cast("dict[str, Any]", json.loads(source.parts[name]))


def lanes(**tokens: int) -> EngineFigures:
    done = LaneFigures(permits=2, input_tokens=tokens["read"], output_tokens=tokens["written"])
    return EngineFigures(lanes={Lane.REALTIME: done, Lane.BATCH: LaneFigures()}, kept_permits=3)


def test_an_engine_has_a_card() -> None:
    source = engines(entry(canary_prompt="Paris?"))
    figures = EngineFigures(
        lanes={Lane.REALTIME: LaneFigures(permits=2), Lane.FLEX: LaneFigures()},
        kept_permits=3,
        prefix_queries=1000,
        prefix_hits=250,
    )
    source.see(sight(report(kv_use=0.5049, figures=figures)), NOW_S)
    assert part(source, "engine/e") == {
        "id": "e",
        "model": "m",
        "host": "h",
        "pid": 1,
        "state": "ready",
        "reason": "",
        "canary": "passed",
        "started_at_s": int(NOW_S) - 3600,
        "missing_since_s": None,
        "capacity": 8,
        "kept": 3,
        "running": {"realtime": 2},
        "kv_use": 0.5,
        "prefix_hit_rate": 0.25,
        "input_tokens_per_s": None,
        "output_tokens_per_s": None,
    }


def test_its_pace_is_that_of_the_last_half_minute() -> None:
    source = engines()
    for seconds in range(0, 61, 2):
        figures = lanes(read=10 * seconds, written=100 * max(0, seconds - 30))
        source.see(sight(report(figures=figures)), NOW_S + seconds)
    card = part(source, "engine/e")
    assert card["input_tokens_per_s"] == 10
    assert card["output_tokens_per_s"] == pytest.approx(100, rel=0.1)


@pytest.mark.parametrize(
    ("prompt", "state", "canary"),
    [
        ("", EngineState.READY, "none"),
        ("Paris?", EngineState.LOADING, "pending"),
        ("Paris?", EngineState.DRAINING, "passed"),
        ("Paris?", EngineState.FAILED, "failed"),
    ],
)
def test_a_card_says_whether_the_engine_has_proved_itself(
    prompt: str, state: EngineState, canary: str
) -> None:
    source = engines(entry(canary_prompt=prompt))
    source.see(sight(report(state=state)), NOW_S)
    assert part(source, "engine/e")["canary"] == canary


def test_an_engine_that_goes_silent_is_missing() -> None:
    source = engines()
    source.see(sight(report()), NOW_S)
    source.see(sight(silent={"e"}), NOW_S + 1)
    # Swept from the set, it is missing all the same.
    source.see(sight(), NOW_S + 70)
    card = part(source, "engine/e")
    assert (card["state"], card["missing_since_s"]) == ("missing", int(NOW_S) + 1)
    assert [each.since_s for each in source.lost.values()] == [NOW_S + 1]


def test_an_engine_that_says_goodbye_is_not_missing() -> None:
    source = engines()
    source.see(sight(report()), NOW_S)
    source.see(sight(), NOW_S + 1)
    assert "engine/e" not in source.parts
    assert not source.lost


def test_a_missing_engine_is_forgotten_when_it_is_back_or_replaced_or_long_gone() -> None:
    for later, found in (
        (2, sight(report())),
        (20, sight(report("new", started_at_s=NOW_S + 15))),
        (3600, sight()),
    ):
        source = engines()
        source.see(sight(report()), NOW_S)
        source.see(sight(silent={"e"}), NOW_S + 1)
        source.see(found, NOW_S + later)
        assert not source.lost
    assert "engine/e" not in source.parts


def test_an_engine_that_was_beside_it_before_does_not_replace_it() -> None:
    source = engines()
    other = report("other", started_at_s=NOW_S - 60)
    source.see(sight(report(), other), NOW_S)
    source.see(sight(other, silent={"e"}), NOW_S + 1)
    assert set(source.lost) == {"e"}


def test_a_model_has_its_engines_and_targets() -> None:
    source = engines(entry(ttft_target_ms=500), entry("other"))
    source.see(sight(report(), report("f", state=EngineState.LOADING)), NOW_S)
    assert part(source, "model/m") == {
        "id": "m",
        "upstream": "",
        "engines": {"ready": 1, "loading": 1},
        "first_token_target_s": 0.5,
        "between_tokens_target_s": None,
    }
    assert part(source, "model/other")["engines"] == {}


def test_an_engine_that_keeps_a_pace_tells_the_targets() -> None:
    pace = PaceStats(itl_target_s=0.02, ttft_target_s=0.25, idle_itl_s=0.01, idle_ttft_s=0.1)
    source = engines()
    source.see(sight(report(figures=EngineFigures(pace=pace))), NOW_S)
    model = part(source, "model/m")
    assert (model["first_token_target_s"], model["between_tokens_target_s"]) == (0.25, 0.02)


def test_queues_are_added_up_by_lane() -> None:
    source = engines()
    found = [
        Queue("m", Lane.REALTIME, 2, NOW_S - 5),
        Queue("n", Lane.REALTIME, 3, NOW_S - 9),
        Queue("m", Lane.FLEX, 0, None),
    ]
    source.see(sight(report(figures=lanes(read=0, written=0)), queues=found), NOW_S)
    assert part(source, "queue/realtime") == {"waiting": 5, "since_s": NOW_S - 9, "running": 2}
    assert part(source, "queue/flex") == {"waiting": 0, "since_s": None, "running": 0}


def test_since_when_records_wait_is_kept_as_the_last_look_found_it() -> None:
    source = engines()
    source.see(sight(records_since_s=NOW_S - 3), NOW_S)
    assert source.records_since_s == NOW_S - 3
    source.see(sight(), NOW_S + 1)
    assert source.records_since_s is None
