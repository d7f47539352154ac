"""A batch comes with all of its rows, or not at all, and once."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from gateway.batches.creation import NewBatch, create
from gateway.batches.endpoints import MESSAGES
from inference.errors import ErrorCode, TandemError
from jobs.ledger import top_up
from jobs.models import Batch, Work
from jobs.work.enqueue import NewWork
from tests.unit.gateway.batches.material import TERMS, messages_body, reader, row

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def new_batch(**fields: Any) -> NewBatch:
    new = NewBatch(
        id=uuid.uuid4(),
        form=Batch.Form.ANTHROPIC,
        endpoint=MESSAGES,
        principal=TERMS.principal,
        created_at=NOW,
        client="curl",
        address="10.0.0.1",
    )
    return msgspec.structs.replace(new, **fields)


def works(new: NewBatch, *bodies: object) -> Iterator[NewWork]:
    terms = msgspec.structs.replace(TERMS, batch_id=str(new.id))
    rows = [row(body, line, f"row-{line}") for line, body in enumerate(bodies, 1)]
    return reader(MESSAGES, terms).read_all(rows)


def test_a_batch_runs_as_soon_as_it_is_made() -> None:
    new = new_batch()
    batch = create(new, works(new, messages_body(), {}))
    assert (batch.id, batch.status, batch.form) == (new.id, "in_progress", "anthropic")
    assert (batch.total, batch.failed) == (2, 1)
    assert (batch.team_id, batch.team_name, batch.key_name) == (3, "blue", "laptop")
    assert (batch.client, batch.address, batch.endpoint) == ("curl", "10.0.0.1", MESSAGES)
    assert batch.created_at == NOW
    assert batch.expires_at == NOW + timedelta(hours=24)
    states = Work.objects.filter(batch=batch).order_by("line").values_list("custom_id", "state")
    assert list(states) == [("row-1", "pending"), ("row-2", "done")]


def test_what_is_wrong_with_a_row_that_counts_for_all_leaves_nothing() -> None:
    new = new_batch()

    def broken() -> Iterator[NewWork]:
        yield from works(new, messages_body())
        raise TandemError(ErrorCode.INVALID_REQUEST, "requests[1]: no")

    with pytest.raises(TandemError, match=r"requests\[1\]"):
        create(new, broken())
    assert not Batch.objects.exists()
    assert not Work.objects.exists()


def test_a_team_that_has_nothing_left_makes_no_batch() -> None:
    prepaid = msgspec.structs.replace(TERMS.principal, prepaid=True)
    new = new_batch(principal=prepaid)
    with pytest.raises(TandemError) as refused:
        create(new, works(new, messages_body()))
    assert refused.value.code is ErrorCode.BALANCE_EXHAUSTED
    assert not Batch.objects.exists()
    top_up(prepaid.team_id, 1)
    assert create(new, works(new, messages_body())).total == 1


def test_the_same_request_again_gives_the_same_batch() -> None:
    first = new_batch(idempotency_key="monday", request_digest=b"1" * 32)
    again = msgspec.structs.replace(first, id=uuid.uuid4())
    made = create(first, works(first, messages_body()))
    assert create(again, works(again, messages_body())) == made
    assert Work.objects.count() == 1


def test_a_key_of_another_request_is_refused() -> None:
    first = new_batch(idempotency_key="monday", request_digest=b"1" * 32)
    create(first, works(first, messages_body()))
    other = new_batch(idempotency_key="monday", request_digest=b"2" * 32)
    with pytest.raises(TandemError) as refused:
        create(other, works(other, messages_body()))
    assert refused.value.code is ErrorCode.CONFLICT


def test_teams_may_use_the_same_idempotency_key() -> None:
    first = new_batch(idempotency_key="monday", request_digest=b"1" * 32)
    create(first, works(first, messages_body()))
    red = msgspec.structs.replace(TERMS.principal, team_id=4)
    other = new_batch(idempotency_key="monday", request_digest=b"2" * 32, principal=red)
    assert create(other, works(other, messages_body())).id == other.id
