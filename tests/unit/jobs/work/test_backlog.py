"""What there is of work and batches at a moment."""

from __future__ import annotations

import uuid
from collections import Counter
from datetime import timedelta

import pytest
from django.utils import timezone
from pytest_django import Settings

from inference.request import Lane
from jobs import batches, responses
from jobs.models import Batch
from jobs.responses import NewResponse
from jobs.work.backlog import Backlog, read_backlog
from tests.work import KEY, finished, new_batch, new_source, new_work, rows_of

pytestmark = pytest.mark.django_db(transaction=True)

BATCH = ("m", "batch")
BACKGROUND = ("m", "background")


@pytest.fixture(autouse=True)
def _terms(settings: Settings) -> None:
    settings.WORK_TERMS = "tests.work.no_terms"


def background() -> NewResponse:
    """Store a response that is to be made in the background."""
    now = timezone.now()
    new = NewResponse(
        id=str(uuid.uuid4()),
        team_id=1,
        key_id=KEY,
        model="m",
        lane=Lane.BACKGROUND,
        created_at=now,
        deadline_at=now + timedelta(hours=1),
        expires_at=now + timedelta(days=30),
        background=True,
        streamed=False,
        body=b"{}",
    )
    work = new_work(
        id=new.id,
        dialect="responses",
        lane=Lane.BACKGROUND,
        created_at=now,
        deadline_at=new.deadline_at,
    )
    responses.create(new, work)
    return new


def test_nothing_is_nothing() -> None:
    assert read_backlog() == Backlog(Counter(), Counter(), {}, Counter())


def test_rows_are_told_by_whether_they_wait_or_run() -> None:
    old = new_batch(created_at=timezone.now() - timedelta(hours=2))
    new = new_batch()
    for batch in (old, new):
        batches.begin(batch.pk, rows_of(batch, 4))
    source = new_source()
    taken = source.claim(3)
    source.finish([finished(item) for item in taken[:2]])
    found = read_backlog()
    assert found.running == {BATCH: 1}
    assert found.pending == {BATCH: 5}
    assert found.oldest == {BATCH: min(old.created_at, new.created_at)}
    assert found.batches == {("openai", "in_progress"): 2}


def test_a_batch_of_which_nothing_waits_does_not_count_as_waiting() -> None:
    batch = new_batch()
    batches.begin(batch.pk, rows_of(batch, 2))
    items = new_source().claim(2)
    assert len(items) == 2
    found = read_backlog()
    assert (found.pending, found.oldest) == ({}, {})
    assert found.running == {BATCH: 2}


def test_rows_of_several_models_wait_without_one() -> None:
    batch = new_batch()
    rows = [*rows_of(batch, 1), *rows_of(batch, 2, first=2, model="other")]
    batches.begin(batch.pk, rows)
    assert read_backlog().pending == {("", "batch"): 3}


def test_background_responses_are_told_apart() -> None:
    first = background()
    background()
    found = read_backlog()
    assert found.pending == {BACKGROUND: 2}
    assert found.oldest[BACKGROUND] == first.created_at
    new_source().claim(1)
    found = read_backlog()
    assert (found.pending, found.running) == ({BACKGROUND: 1}, {BACKGROUND: 1})


def test_batches_that_are_over_are_not_counted() -> None:
    batches.fail(new_batch().pk, [])
    new_batch(form=Batch.Form.ANTHROPIC)
    assert read_backlog().batches == {("anthropic", "validating"): 1}
