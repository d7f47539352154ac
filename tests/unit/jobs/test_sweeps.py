"""Regular cleaning."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import timedelta

import pytest
import redis
from django.conf import settings
from django.utils import timezone

from inference.models import Model
from inference.request import Lane
from inference.transport.connection import connect_sync
from inference.transport.keys import GROUP, Keys
from jobs import batches
from jobs.celery import app
from jobs.models import Worker
from jobs.sweeps import sweep_transport, sweep_work
from tests.work import new_batch, rows_of

pytestmark = pytest.mark.django_db

KEYS = Keys(settings.TANDEM.REDIS_PREFIX)
QUEUE = KEYS.queue("m", Lane.REALTIME)


@pytest.fixture
def client() -> Iterator[redis.Redis]:
    """Return a client; one engine `live` and one engine `dead` have read model `m`'s queue."""
    Model.objects.create(id="m", context_tokens=1, backend=Model.Backend.SCRIPTED)
    with connect_sync(settings.REDIS_URL) as connected:
        connected.delete(QUEUE, KEYS.engines)
        connected.xgroup_create(QUEUE, GROUP, id="0", mkstream=True)
        connected.sadd(KEYS.engines, "live", "dead")
        connected.set(KEYS.engine("live"), b"1")
        for engine_id in ("live", "dead"):
            connected.xgroup_createconsumer(QUEUE, GROUP, engine_id)
        yield connected
        connected.delete(QUEUE, KEYS.engines, KEYS.engine("live"))


def consumers(client: redis.Redis) -> set[bytes]:
    return {consumer["name"] for consumer in client.xinfo_consumers(QUEUE, GROUP)}


def test_a_dead_engine_is_forgotten_and_a_live_one_is_not(client: redis.Redis) -> None:
    sweep_transport()
    assert client.smembers(KEYS.engines) == {b"live"}
    assert consumers(client) == {b"live"}


@pytest.mark.parametrize(
    "queue", [KEYS.queue("m", Lane.FLEX), KEYS.counts("m")], ids=["flex", "counts"]
)
def test_a_dead_engine_is_forgotten_in_every_queue(client: redis.Redis, queue: str) -> None:
    client.delete(queue)
    client.xgroup_create(queue, GROUP, id="0", mkstream=True)
    client.xgroup_createconsumer(queue, GROUP, "dead")
    sweep_transport()
    assert client.xinfo_consumers(queue, GROUP) == []
    client.delete(queue)


def test_what_a_dead_engine_still_holds_is_left_to_the_others(client: redis.Redis) -> None:
    client.xadd(QUEUE, {"r": b"x"})
    client.xreadgroup(GROUP, "dead", {QUEUE: ">"})
    sweep_transport()
    assert consumers(client) == {b"live", b"dead"}


def test_a_second_sweep_finds_nothing(
    client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    sweep_transport()
    assert "Swept 1 dead engines" in caplog.text
    caplog.clear()
    sweep_transport()
    assert caplog.text == ""


def test_a_model_that_nobody_has_served_yet_is_no_obstacle(client: redis.Redis) -> None:
    Model.objects.create(id="new", context_tokens=1, backend=Model.Backend.SCRIPTED)
    sweep_transport()
    assert client.smembers(KEYS.engines) == {b"live"}


def test_the_sweep_is_scheduled() -> None:
    import jobs.tasks  # noqa: F401

    for job in settings.CELERY_BEAT_SCHEDULE.values():
        assert job["task"] in app.tasks


def test_work_that_came_to_a_halt_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    now = timezone.now()
    past = now - timedelta(hours=1)
    late = new_batch(created_at=past, expires_at=now - timedelta(seconds=1))
    batches.begin(late.pk, rows_of(late, 2))
    Worker.objects.create(id=uuid.uuid4(), model="m", expires_at=past)
    sweep_work()
    late.refresh_from_db()
    assert (late.expired, late.status) == (2, "finalizing")
    assert not Worker.objects.exists()
    assert "Ended 2 pieces of work that were late" in caplog.text
    caplog.clear()
    sweep_work()
    assert caplog.text == ""
