"""Why work that waits does not begin."""

from __future__ import annotations

import re
import time
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from gateway.admin import waiting
from gateway.admin.waiting import Look, Wait, for_batch, for_batches, for_work
from gateway.models import Team
from inference.models import Model
from inference.request import Lane
from inference.transport.figures import EngineFigures, LaneFigures
from inference.transport.frames import EngineReport, EngineState
from jobs import ledger
from tests.unit.gateway.admin.rows import make_batch, make_row

pytestmark = pytest.mark.django_db

LATER = timezone.now() + timedelta(days=1)


def report(model: str = "tiny", **fields: Any) -> EngineReport:
    known: dict[str, Any] = {
        "engine_id": "e",
        "model": model,
        "host": "h",
        "pid": 1,
        "state": EngineState.READY,
        "capacity": 4,
        "in_flight": 0,
        "kv_use": None,
        "started_at_s": time.time(),
    }
    return EngineReport(**(known | fields))


def permits(kept: int = 0, **lanes: int) -> EngineFigures:
    return EngineFigures(
        lanes={Lane(lane): LaneFigures(permits=number) for lane, number in lanes.items()},
        kept_permits=kept,
    )


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> list[EngineReport]:
    """What engines say; to be filled."""
    said: list[EngineReport] = []
    monkeypatch.setattr(waiting, "read_reports", lambda: said)
    return said


def text_of(*reports: EngineReport, model: str = "tiny") -> str:
    wait = Look(list(reports), frozenset({"tiny"})).wait_for(model)
    return wait.text if wait else ""


def test_what_has_no_engine_says_what_its_engines_are_at() -> None:
    assert text_of() == "no engine serves tiny"
    assert text_of(report("other")) == "no engine serves tiny"
    loading = report(state=EngineState.LOADING)
    assert text_of(loading) == "the engine of tiny is still loading"
    failed = report(state=EngineState.FAILED, reason="out of memory")
    assert text_of(failed) == "the engine of tiny does not serve: out of memory"
    assert text_of(failed, loading) == "the engine of tiny is still loading"
    assert "draining" in text_of(report(state=EngineState.DRAINING))
    assert "disabled or gone" in text_of(model="off")


def test_a_redis_that_is_away_is_said_to_be_so() -> None:
    seen = Look(None, frozenset({"tiny"}))
    wait = seen.wait_for("tiny")
    assert wait is not None
    assert wait.text.startswith("Redis does not answer")
    assert not wait.model


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        (permits(), ""),
        (permits(realtime=2, kept=1), ""),
        (permits(realtime=3, kept=1), "the engines of tiny are full of realtime work"),
        (permits(realtime=4), "the engines of tiny are full of realtime work"),
        (permits(realtime=1, batch=3), "the engines of tiny run other work first"),
    ],
)
def test_engines_without_a_place_say_what_has_them(figures: EngineFigures, said: str) -> None:
    assert text_of(report(figures=figures)) == said


def test_one_engine_with_a_place_is_enough() -> None:
    assert text_of(report(figures=permits(realtime=4)), report()) == ""


def test_a_batch_that_runs_or_is_over_waits_for_nothing(reports: list[EngineReport]) -> None:
    runs = make_batch(total=2)
    make_row(runs, 1, state="running")
    make_row(runs, 2)
    over = make_batch(total=1, completed=1)
    unread = make_batch(status="validating")
    cancelled = make_batch(status="cancelling", total=1)
    for batch in (runs, over, unread, cancelled):
        assert for_batch(batch) is None
    assert for_batches([runs, over, unread, cancelled]) == {}


def test_batches_that_stand_still_are_told(reports: list[EngineReport]) -> None:
    Model.objects.create(id="tiny", context_tokens=1)
    still = make_batch(total=1)
    make_row(still)
    wait = Wait("no engine serves tiny", "tiny")
    assert for_batch(still) == wait
    assert for_batches([still]) == {still.pk: wait}
    reports.append(report())
    assert for_batch(still) is None
    assert for_batches([still]) == {}


def test_of_several_models_the_one_that_rows_wait_for_is_told(
    reports: list[EngineReport],
) -> None:
    for name in ("away", "idle", "tiny"):
        Model.objects.create(id=name, context_tokens=1)
    reports.append(report())
    batch = make_batch(model="", total=3)
    make_row(batch, 1, model="tiny", state="running")
    make_row(batch, 2, model="tiny")
    assert for_batch(batch) is None
    make_row(batch, 3, model="away")
    assert for_batch(batch) == Wait("no engine serves away", "away")


def test_work_that_waits_is_told_and_no_other(reports: list[EngineReport]) -> None:
    batch = make_batch(total=3)
    waits = make_row(batch, 1)
    others = [make_row(batch, 2, state="running"), make_row(batch, 3, state="done")]
    assert set(for_work([waits, *others])) == {waits.pk}
    reports.append(report())
    assert for_work([waits, *others]) == {}
    paused = make_row(batch, 4, not_before=LATER)
    assert for_work([paused])[paused.pk].text.endswith(f"{LATER:%H:%M:%S} UTC")
    tried = make_row(batch, 5, not_before=timezone.now() - timedelta(seconds=1))
    assert for_work([tried]) == {}


@pytest.mark.parametrize(
    ("terms", "waits"),
    [
        ({}, False),
        ({"prepaid": True}, True),
        ({"daily_spend_cap_micros": 150}, True),
        ({"monthly_spend_cap_micros": 200}, False),
    ],
)
def test_money_that_is_held_for_what_runs_is_told(
    reports: list[EngineReport], terms: dict[str, Any], waits: bool
) -> None:
    Model.objects.create(id="tiny", context_tokens=1)
    reports.append(report())
    team = Team.objects.create(name="blue", **terms)
    ledger.top_up(team.pk, 150, nonce="n", actor="a", description="")
    batch = make_batch(team_id=team.pk, total=1)
    make_row(batch, team_id=team.pk, hold_micros=100)
    assert for_batch(batch) is None
    make_row(make_batch(), team_id=team.pk, state="running", hold_micros=100)
    found = for_batch(batch)
    assert (found is not None) == waits
    if found:
        assert found.text == "what blue may spend is held for what it has running"


@pytest.mark.usefixtures("reports")
def test_lists_and_pages_say_it(admin_client: Client) -> None:
    Model.objects.create(id="tiny", context_tokens=1)
    batch = make_batch(total=2, cancelled=1)
    row = make_row(batch)
    listed = admin_client.get("/admin/jobs/batch/").content.decode()
    assert "1 of 2 (50%), 1 cancelled, waiting: no engine serves tiny" in listed
    rows = admin_client.get("/admin/jobs/work/").content.decode()
    assert "Pending: no engine serves tiny" in rows
    assert (
        "no engine serves tiny" in admin_client.get(f"/admin/requests/{row.pk}/").content.decode()
    )


def test_lists_that_cannot_see_engines_are_shown_all_the_same(
    admin_client: Client, settings: Settings
) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    make_row(make_batch(total=1))
    for page in ("/admin/jobs/batch/", "/admin/jobs/work/"):
        assert "Redis does not answer" in admin_client.get(page).content.decode()


def test_of_rows_that_never_ran_the_list_says_how_they_ended(admin_client: Client) -> None:
    make_row(make_batch(), 1, state="done", outcome="cancelled")
    page = admin_client.get("/admin/jobs/work/").content.decode()
    assert re.search(r"<td[^>]*field-error[^>]*>\s*cancelled\s*</td>", page)
