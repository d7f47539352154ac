"""What the clerk does for batches, whose files and results are another module's."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from gateway import tasks
from gateway.batches import lifecycle
from gateway.batches.rows import Terms
from gateway.keys import find_live_key, mint
from inference.models import Model
from jobs.models import Batch

pytestmark = pytest.mark.django_db(transaction=True)

Made = Callable[..., Batch]


@pytest.fixture
def make_batch() -> Made:
    """Return a function that makes a batch of a team with a key."""
    key = find_live_key(mint("laptop", "blue"))

    def make(status: Batch.Status, form: Batch.Form = Batch.Form.OPENAI, **fields: Any) -> Batch:
        now = timezone.now()
        given = {"team_id": key.team_id, "key_id": key.id} | fields
        return Batch.objects.create(
            id=uuid.uuid4(),
            form=form,
            status=status,
            endpoint="/v1/messages",
            created_at=now,
            expires_at=now + timedelta(days=1),
            **given,
        )

    return make


def test_a_batch_is_validated_as_its_key_may(
    make_batch: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    Model.objects.create(id="m", backend="scripted", weights="", context_tokens=10, capacity=1)
    seen: list[tuple[Batch, Terms]] = []
    monkeypatch.setattr(
        lifecycle, "validate", lambda batch, terms, load_images: seen.append((batch, terms))
    )
    batch = make_batch(Batch.Status.VALIDATING)
    tasks.validate_batch(str(batch.id))
    ((validated, terms),) = seen
    assert validated == batch
    assert terms.batch_id == str(batch.id)
    assert terms.principal.key_id == str(batch.key_id)
    assert terms.deadline_at == batch.expires_at
    assert terms.catalogue.find("M") is not None


def test_a_batch_whose_key_is_gone_fails(make_batch: Made) -> None:
    batch = make_batch(Batch.Status.VALIDATING, key_id=uuid.uuid4())
    tasks.validate_batch(str(batch.id))
    batch.refresh_from_db()
    assert batch.status == Batch.Status.FAILED
    assert batch.errors == [{"code": "invalid_api_key", "message": "The key was deleted."}]


@pytest.mark.parametrize("task", [tasks.validate_batch, tasks.finalize_batch])
@pytest.mark.parametrize("status", [Batch.Status.IN_PROGRESS, Batch.Status.COMPLETED])
def test_a_task_that_comes_too_late_changes_nothing(
    make_batch: Made, task: Callable[[str], None], status: Batch.Status
) -> None:
    batch = make_batch(status)
    task(str(batch.id))
    task(str(uuid.uuid4()))
    batch.refresh_from_db()
    assert batch.status == status


@pytest.mark.parametrize("form", [Batch.Form.ANTHROPIC, Batch.Form.SFERENCE])
def test_a_batch_with_its_results_in_its_rows_ends_without_files(
    make_batch: Made, form: Batch.Form
) -> None:
    batch = make_batch(Batch.Status.FINALIZING, form)
    tasks.finalize_batch(str(batch.id))
    batch.refresh_from_db()
    assert batch.status == Batch.Status.COMPLETED
    assert (batch.output_file_id, batch.error_file_id) == (None, None)


def test_the_files_of_openais_batch_are_written(
    make_batch: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Batch] = []
    monkeypatch.setattr(lifecycle, "write_results", written.append)
    batch = make_batch(Batch.Status.FINALIZING)
    tasks.finalize_batch(str(batch.id))
    assert written == [batch]


def test_celery_finds_the_tasks_by_the_names_that_jobs_send() -> None:
    from jobs.batches import VALIDATE_TASK
    from jobs.celery import app
    from jobs.work.counts import FINALIZE_TASK

    app.loader.import_default_modules()
    assert {VALIDATE_TASK, FINALIZE_TASK} <= set(app.tasks)
