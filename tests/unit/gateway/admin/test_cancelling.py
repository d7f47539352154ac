"""Whether what an operator cancels was cancelled by that."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.admin.cancelling import cancel_batch, cancel_response
from jobs.models import Batch
from tests.unit.gateway.admin.rows import NOON, make_batch, make_response, make_row

pytestmark = pytest.mark.django_db


def test_a_batch_that_runs_is_cancelled_once() -> None:
    batch = make_batch(total=1)
    make_row(batch, 1, state="running")
    assert cancel_batch(batch)
    assert not cancel_batch(Batch.objects.get(pk=batch.pk))


def test_a_batch_that_ended_meanwhile_was_not_cancelled() -> None:
    batch = make_batch(total=1)
    Batch.objects.update(status="finalizing")
    assert not cancel_batch(batch)


def test_a_response_in_the_background_is_cancelled_once() -> None:
    response = make_response()
    make_row(None, id=response.pk, lane="background")
    assert cancel_response(response)
    response.refresh_from_db()
    assert not cancel_response(response)


@pytest.mark.parametrize(
    "fields", [{"status": "completed", "ended_at": NOON}, {"background": False}]
)
def test_no_other_response_is(fields: dict[str, Any]) -> None:
    assert not cancel_response(make_response(**fields))
