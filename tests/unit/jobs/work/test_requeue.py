"""Work that is put back into the queue by hand."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from django.utils import timezone
from pytest_django import Settings

from jobs.models import Work
from jobs.work.cancel import cancel
from jobs.work.enqueue import insert
from jobs.work.requeue import requeue
from tests.work import finished, new_source, new_work

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _terms(settings: Settings) -> None:
    settings.WORK_TERMS = "tests.work.no_terms"


def put(**fields: object) -> Work:
    new = new_work(**fields)
    insert([new])
    return Work.objects.get(pk=new.id)


def test_work_that_runs_is_taken_from_its_engine_and_another_does_it() -> None:
    work = put()
    one, other = new_source(), new_source()
    (item,) = one.claim(1)

    assert requeue(str(work.pk))

    work.refresh_from_db()
    assert (work.state, work.worker_id, work.attempts, work.deaths) == ("pending", None, 0, 0)
    # The engine that had it hears so as it renews its lease.
    assert one.renew([item.request.id]) == {item.request.id}
    (again,) = other.claim(1)
    other.finish([finished(again)])
    one.finish([finished(item)])
    assert not Work.objects.filter(pk=work.pk, state="running").exists()


def test_work_that_waits_for_its_next_try_need_not_wait() -> None:
    work = put()
    Work.objects.filter(pk=work.pk).update(not_before=timezone.now() + timedelta(hours=1))
    assert new_source().claim(1) == []
    assert requeue(str(work.pk))
    assert len(new_source().claim(1)) == 1


def test_work_that_is_to_be_cancelled_ends_instead() -> None:
    work = put()
    new_source().claim(1)
    cancel(str(work.pk))
    assert requeue(str(work.pk))
    assert not Work.objects.filter(pk=work.pk).exclude(state="done").exists()


def test_work_that_has_ended_stays_as_it_is() -> None:
    work = put(error_code="invalid_request")
    assert not requeue(str(work.pk))
    work.refresh_from_db()
    assert work.state == "done"


def test_there_is_nothing_to_put_back_of_what_is_not_known() -> None:
    assert not requeue(str(uuid.uuid4()))
