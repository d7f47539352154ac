"""A team's batches: found, listed, deleted; and the rows of one, a page at a time."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

import pytest

from gateway.batches import results
from gateway.batches.results import ended_rows, page
from gateway.batches.store import Listing, delete, find
from gateway.batches.store import page as page_of_batches
from inference.errors import ErrorCode, TandemError
from jobs.models import Batch, Work

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
FORM = Batch.Form.SFERENCE


def make_batch(number: int = 1, team_id: int = 3, form: str = FORM) -> Batch:
    # The id of a batch begins with when it was made.
    made = NOW + timedelta(seconds=number // 2)
    return Batch.objects.create(
        id=uuid.UUID(int=number + (team_id << 32)),
        form=form,
        team_id=team_id,
        key_id=uuid.UUID(int=1),
        endpoint="/v1/messages",
        created_at=made,
        expires_at=made + timedelta(days=1),
    )


def make_row(batch: Batch, line: int, state: Work.State = Work.State.DONE) -> Work:
    return Work.objects.create(
        id=uuid.uuid4(),
        batch=batch,
        line=line,
        custom_id=f"row-{line}",
        team_id=batch.team_id,
        key_id=batch.key_id,
        dialect="chat",
        model="m",
        lane="batch",
        rank=3,
        deadline_at=batch.expires_at,
        state=state,
        outcome=Work.Outcome.CANCELLED if state == Work.State.DONE else "",
        ended_at=NOW if state == Work.State.DONE else None,
        echo=b"{}",
    )


def test_a_batch_is_found_by_its_team_alone_and_in_its_form_alone() -> None:
    batch = make_batch()
    assert find(batch.id, 3, FORM, "it") == batch
    for batch_id, team_id, form in (
        (batch.id, 4, FORM),
        (batch.id, 3, Batch.Form.OPENAI),
        (uuid.uuid4(), 3, FORM),
        (None, 3, FORM),
    ):
        with pytest.raises(TandemError, match="there is no batch 'it'") as refused:
            find(batch_id, team_id, form, "it")
        assert refused.value.code is ErrorCode.NOT_FOUND


def test_batches_are_paged_through_in_both_directions() -> None:
    batches = [make_batch(number) for number in range(1, 8)]
    make_batch(9, team_id=4)
    make_batch(10, form=Batch.Form.OPENAI)
    newest_first = batches[::-1]
    seen: list[Batch] = []
    more, after = True, None
    while more:
        found, more = page_of_batches(Listing(3, FORM, 3, after=after))
        seen += found
        after = seen[-1].id
    assert seen == newest_first
    found, more = page_of_batches(Listing(3, FORM, 3, before=batches[0].id))
    assert (found, more) == ([batches[3], batches[2], batches[1]], True)
    found, more = page_of_batches(Listing(3, FORM, 3, before=batches[5].id))
    assert (found, more) == ([batches[6]], False)


def test_paging_goes_on_after_a_batch_that_was_deleted() -> None:
    batches = [make_batch(number) for number in range(1, 5)]
    cursor = batches[2].id
    delete(cursor)
    assert page_of_batches(Listing(3, FORM, 9, after=cursor))[0] == [batches[1], batches[0]]
    assert page_of_batches(Listing(3, FORM, 9, before=cursor))[0] == [batches[3]]


def test_a_batch_is_deleted_with_its_rows() -> None:
    batch, other = make_batch(1), make_batch(2)
    make_row(batch, 1)
    kept = make_row(other, 1)
    delete(batch.id)
    assert list(Batch.objects.all()) == [other]
    assert list(Work.objects.all()) == [kept]


def test_rows_are_read_in_pages_and_only_those_that_have_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(results, "_PAGE_ROWS", 2)
    batch, other = make_batch(1), make_batch(2)
    for line in (3, 1, 2, 5):
        make_row(batch, line)
    make_row(batch, 4, Work.State.RUNNING)
    make_row(other, 1)
    assert [row.line for row in page(batch.id)] == [1, 2]
    assert [row.line for row in page(batch.id, 2)] == [3, 5]
    rows = list(ended_rows(batch.id))
    assert [row.custom_id for row in rows] == ["row-1", "row-2", "row-3", "row-5"]
    assert (rows[0].outcome, rows[0].ended_at, rows[0].repeated) == ("cancelled", NOW, {})
    assert not rows[0].completed
