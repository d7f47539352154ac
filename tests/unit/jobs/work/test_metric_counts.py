"""What the metrics count of work that is over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from django.conf import settings as django_settings
from django.db import transaction
from django.utils import timezone
from pytest_django import Settings

from inference.errors import ErrorCode
from inference.transport.connection import connect_sync
from inference.transport.keys import Keys
from inference.transport.records import Ending
from jobs import batches
from jobs.models import Work, Worker
from jobs.work import leases
from jobs.work.cancel import cancel
from jobs.work.enqueue import insert
from jobs.work.metric_counts import MetricCounts, count_ended, read_counts
from tests.work import finished, new_batch, new_source, new_work, result, rows_of

pytestmark = pytest.mark.django_db(transaction=True)

Read = Callable[[], MetricCounts]


@pytest.fixture(autouse=True)
def read(settings: Settings) -> Iterator[Read]:
    """Return a function that reads the counts, which begin at nothing."""
    settings.WORK_TERMS = "tests.work.no_terms"
    key = Keys(django_settings.TANDEM.REDIS_PREFIX).work_counts
    with connect_sync(django_settings.REDIS_URL) as client:
        client.delete(key)
        yield lambda: read_counts(client.hgetall(key))
        client.delete(key)


def test_every_way_to_end_is_counted_by_model(read: Read) -> None:
    batch, cancelled = new_batch(), new_batch()
    batches.begin(batch.pk, rows_of(batch, 3, model="vendor/a:b"))
    batches.begin(cancelled.pk, rows_of(cancelled, 2))
    insert([lone := new_work()])
    source = new_source("vendor/a:b")
    good, bad, late = source.claim(3)
    source.finish(
        [
            finished(good),
            result(bad, ending=Ending.FAILED, detail=ErrorCode.INVALID_REQUEST.value),
            result(late, ending=Ending.TIMEOUT),
        ]
    )
    batches.cancel(cancelled.pk)
    cancel(lone.id)
    assert read().ended == {
        ("vendor/a:b", "completed"): 1,
        ("vendor/a:b", "failed"): 1,
        ("vendor/a:b", "expired"): 1,
        ("m", "cancelled"): 3,
    }


def test_rows_that_could_not_be_read_are_counted_without_a_model(read: Read) -> None:
    batch = new_batch()
    wrong = rows_of(batch, 2, model="", error_code=ErrorCode.INVALID_REQUEST.value)
    batches.begin(batch.pk, wrong)
    assert read().ended == {("", "failed"): 2}


def test_work_is_counted_whose_engine_died(read: Read) -> None:
    batch = new_batch()
    batches.begin(batch.pk, rows_of(batch, 3))
    source = new_source()
    source.claim(2)
    Worker.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    leases.reap(timezone.now())
    assert read() == MetricCounts(Counter(), Counter({"m": 2}))
    assert set(Work.objects.values_list("state", flat=True)) == {"pending"}


def test_what_is_not_committed_is_not_counted(read: Read) -> None:
    with transaction.atomic():
        count_ended([("m", "completed")])
        transaction.set_rollback(True)
    assert read().ended == {}


def test_work_ends_without_redis(settings: Settings, read: Read) -> None:
    batch = new_batch()
    batches.begin(batch.pk, rows_of(batch, 2))
    settings.REDIS_URL = "redis://127.0.0.1:1"
    batches.cancel(batch.pk)
    batch.refresh_from_db()
    assert batch.cancelled == 2
    assert read().ended == {}
