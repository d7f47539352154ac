"""Work is run as long as its team can pay for it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import cast

import pytest
import redis
from django.conf import settings as django_settings
from django.utils import timezone

from gateway.models import Team
from inference.transport.connection import connect_sync
from jobs import batches, ledger
from jobs.models import Batch, Price, Work, Worker
from jobs.quota.claims import Ended
from jobs.quota.keys import QuotaKeys
from jobs.recorder.sweep import end_late
from tests.holders import read_holder
from tests.work import finished, new_batch, new_source, rows_of

pytestmark = pytest.mark.django_db(transaction=True)

HOLD = 1_000


@pytest.fixture(autouse=True)
def client() -> Iterator[redis.Redis]:
    """Return a client; nothing is known of any team, whose ids other tests may have had."""
    with connect_sync(django_settings.REDIS_URL) as connected:
        for key in connected.scan_iter(f"{django_settings.TANDEM.REDIS_PREFIX}:quota:*"):
            connected.delete(key)
        yield connected


@pytest.fixture(autouse=True)
def _priced() -> None:
    Price.objects.create(
        model="m",
        effective_from=timezone.now() - timedelta(days=1),
        input_micros_per_mtok=1_000_000,
        cached_input_micros_per_mtok=1_000_000,
        cache_write_micros_per_mtok=1_000_000,
        output_micros_per_mtok=1_000_000,
    )


def batch_of(team: Team, rows: int) -> Batch:
    batch = new_batch(team_id=team.pk)
    return batches.begin(batch.pk, rows_of(batch, rows, hold_micros=HOLD))


def held(client: redis.Redis, team: Team) -> int:
    keys = QuotaKeys(django_settings.TANDEM.REDIS_PREFIX).team(team.pk)
    kept = cast("bytes | None", client.hget(keys[0], "team"))
    return int(read_holder(kept)["held"]) if kept else 0


def in_flight(client: redis.Redis, team: Team) -> int:
    keys = QuotaKeys(django_settings.TANDEM.REDIS_PREFIX).team(team.pk)
    return int(client.zcard(keys[2]))


def test_a_team_with_nothing_left_has_its_rows_failed_and_not_others() -> None:
    poor, rich = Team.objects.create(name="poor", prepaid=True), Team.objects.create(name="rich")
    empty, full = batch_of(poor, 40), batch_of(rich, 1)
    source = new_source()
    (item,) = source.claim(4)
    assert item.request.owner is not None
    assert item.request.owner.team_id == rich.pk
    assert source.claim(4) == []
    source.finish([finished(item)])
    empty.refresh_from_db()
    full.refresh_from_db()
    assert (empty.failed, empty.status) == (40, Batch.Status.FINALIZING)
    assert (full.completed, full.failed) == (1, 0)
    row = Work.objects.filter(batch=empty).first()
    assert row is not None
    assert (row.error_code, row.error_message) == (
        "balance_exhausted",
        "the team's balance is used up",
    )


def test_no_more_runs_at_once_than_the_balance_covers_and_the_rest_waits(
    client: redis.Redis,
) -> None:
    team = Team.objects.create(name="careful", prepaid=True)
    ledger.top_up(team.pk, 2 * HOLD + 500)
    batch = batch_of(team, 4)
    source = new_source()
    items = source.claim(4)
    assert len(items) == 2
    assert held(client, team) == 2 * HOLD
    assert new_source().claim(4) == []
    source.finish([finished(each) for each in items])
    assert held(client, team) == 0
    later = new_source().claim(4)
    assert len(later) == 2
    assert [each.attempt for each in later] == [0, 0]
    batch.refresh_from_db()
    assert (batch.completed, batch.failed) == (2, 0)


def test_work_that_goes_back_holds_nothing(client: redis.Redis) -> None:
    team = Team.objects.create(name="back", prepaid=True)
    ledger.top_up(team.pk, 10 * HOLD)
    batch_of(team, 3)
    source = new_source()
    items = source.claim(3)
    assert held(client, team) == 3 * HOLD
    source.give_back([items[0].request.id])
    assert held(client, team) == 2 * HOLD
    source.close()
    assert held(client, team) == 0


def test_running_work_takes_no_place_of_a_request_in_flight(client: redis.Redis) -> None:
    team = Team.objects.create(name="flights", prepaid=True)
    ledger.top_up(team.pk, 10 * HOLD)
    batch_of(team, 2)
    source = new_source()
    source.claim(1)
    source.claim(1)
    assert in_flight(client, team) == 0


def test_what_is_held_for_running_work_is_not_taken_for_lost(client: redis.Redis) -> None:
    team = Team.objects.create(name="late", prepaid=True)
    ledger.top_up(team.pk, 10 * HOLD)
    batch_of(team, 1)
    (item,) = new_source().claim(1)
    assert end_late(team.pk, [item.request.id], timezone.now()) == []


def test_what_is_held_for_work_that_runs_no_more_is_let_go() -> None:
    team = Team.objects.create(name="lost", prepaid=True)
    gone = str(uuid.uuid4())
    (told,) = end_late(team.pk, [gone], timezone.now())
    assert told.requests == [Ended(request_id=gone, settled=True)]


def test_a_cap_on_spending_fails_what_it_does_not_cover() -> None:
    team = Team.objects.create(name="capped", daily_spend_cap_micros=HOLD - 1)
    batch = batch_of(team, 1)
    assert new_source().claim(1) == []
    row = Work.objects.get(batch=batch)
    assert (row.error_code, row.error_message) == ("spend_cap", "spend limit reached (daily)")


def test_a_top_up_that_redis_was_not_told_of_is_seen() -> None:
    team = Team.objects.create(name="topped", prepaid=True)
    ledger.top_up(team.pk, 1)
    first = batch_of(team, 1)
    assert new_source().claim(1) == []
    ledger.top_up(team.pk, 10 * HOLD)
    batch_of(team, 1)
    assert len(new_source().claim(1)) == 1
    assert Work.objects.get(batch=first).outcome == Work.Outcome.FAILED


def test_the_rows_of_a_team_that_is_gone_fail() -> None:
    batch = new_batch(team_id=99_999_999)
    batches.begin(batch.pk, rows_of(batch, 1))
    assert new_source().claim(1) == []
    assert Work.objects.get(batch=batch).error_code == "permission"


def test_without_redis_nothing_is_taken_and_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    team = Team.objects.create(name="away", prepaid=True)
    ledger.top_up(team.pk, 10 * HOLD)
    batch_of(team, 1)
    source = new_source()

    def away(*_: object, **__: object) -> None:
        raise redis.exceptions.ConnectionError("away")

    with monkeypatch.context() as patched:
        patched.setattr("jobs.quota.holds.Holds.hold", away)
        with pytest.raises(redis.exceptions.ConnectionError):
            source.claim(1)
    assert Work.objects.get().state == Work.State.PENDING
    assert len(source.claim(1)) == 1


def test_what_redis_could_not_be_told_of_is_told_later(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    team = Team.objects.create(name="later", prepaid=True)
    ledger.top_up(team.pk, 10 * HOLD)
    batch_of(team, 1)
    source = new_source()
    (item,) = source.claim(1)

    def away(*_: object, **__: object) -> None:
        raise redis.exceptions.ConnectionError("away")

    with monkeypatch.context() as patched:
        patched.setattr("jobs.quota.client.Settler.settle", away)
        source.finish([finished(item)])
    assert held(client, team) == HOLD
    source.renew([])
    assert held(client, team) == 0


def test_what_an_engine_ended_holds_nothing_though_it_died_before_it_could_say_so(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    team = Team.objects.create(name="silent", prepaid=True)
    ledger.top_up(team.pk, 10 * HOLD)
    batch_of(team, 3)
    dying, living = new_source(), new_source()
    first, second = dying.claim(2)
    (other,) = living.claim(1)
    dying.finish([finished(first)])
    with monkeypatch.context() as patched:
        patched.setattr("jobs.work.credit.Credit.settle", lambda *_: None)
        dying.finish([finished(second)])
    assert held(client, team) == 2 * HOLD
    past = timezone.now() - timedelta(seconds=1)
    Worker.objects.filter(pk=dying._engine.id).update(expires_at=past)
    assert new_source().claim(1) == []
    assert held(client, team) == HOLD
    living.finish([finished(other)])
    assert held(client, team) == 0
