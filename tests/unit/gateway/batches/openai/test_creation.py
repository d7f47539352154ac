"""A new batch of a file: who may make it, of which files, and how often."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.utils import timezone
from pytest_django import DjangoCaptureOnCommitCallbacks

from gateway.batches import creation as shared
from gateway.batches.creation import NewBatch
from gateway.batches.openai import creation
from gateway.batches.openai.creation import create
from gateway.batches.openai.wire import BatchBody, decode_batch
from gateway.files.names import file_name
from gateway.keys import Principal
from inference.errors import ErrorCode, TandemError
from jobs import ledger
from jobs.models import Batch, StoredFile
from tests.unit.gateway.batches.openai.conftest import Store

pytestmark = pytest.mark.django_db

Sent = list[tuple[str, str]]


@pytest.fixture(autouse=True)
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """Catch the tasks that are sent."""
    sent: Sent = []
    monkeypatch.setattr(creation, "send", lambda task, argument: sent.append((task, argument)))
    return sent


def body(file_id: str = "file-x", **fields: Any) -> dict[str, Any]:
    known = {"input_file_id": file_id, "endpoint": "/v1/messages", "completion_window": "24h"}
    return known | fields


def new(principal: Principal, **fields: Any) -> NewBatch:
    known: dict[str, Any] = {
        "id": uuid.uuid4(),
        "form": Batch.Form.OPENAI,
        "endpoint": "",
        "principal": principal,
        "created_at": timezone.now(),
        "client": "openai/3",
        "address": "127.0.0.1",
    }
    return NewBatch(**(known | fields))


@pytest.fixture
def decoded(store: Store) -> BatchBody:
    """Return a body that names a good file."""
    return decode_batch(body(file_name(store(b"{}\n").id)))


def test_a_batch_is_made_without_a_look_into_its_file(
    principal: Principal,
    store: Store,
    sent: Sent,
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    file = store(b"nonsense")
    expiry = {"anchor": "created_at", "seconds": 3600}
    asked = body(file_name(file.id), metadata={"a": "b"}, output_expires_after=expiry)
    made = new(principal)
    with django_capture_on_commit_callbacks(execute=True):
        create(made, decode_batch(asked))
        assert sent == [], "not before it is committed"
    assert sent == [("gateway.validate_batch", str(made.id))]
    batch = Batch.objects.get()
    assert (batch.id, batch.status, batch.form) == (made.id, "validating", "openai")
    assert (batch.endpoint, batch.metadata) == ("/v1/messages", {"a": "b"})
    assert (batch.input_file, batch.input_file_ref) == (file, file.id)
    assert batch.output_expires_after_s == 3600
    assert batch.expires_at - batch.created_at == timedelta(hours=24)
    assert (batch.team_name, batch.key_name, batch.client) == ("blue", "laptop", "openai/3")


@pytest.mark.parametrize(
    "changes",
    [{"team_id": 2}, {"expires_at": timezone.now()}, {"purpose": StoredFile.Purpose.USER_DATA}],
    ids=["of another team", "over", "for something else"],
)
def test_only_a_batchs_own_file_is_taken(
    principal: Principal, store: Store, changes: dict[str, Any]
) -> None:
    asked = decode_batch(body(file_name(store(b"{}", **changes).id)))
    with pytest.raises(TandemError) as caught:
        create(new(principal), asked)
    assert (caught.value.code, caught.value.param) == (
        ErrorCode.INVALID_REQUEST,
        "input_file_id",
    )


@pytest.mark.parametrize("file_id", ["x", "file-x", f"file-{uuid.UUID(int=1)}", "\0"])
def test_a_file_that_is_not_there_is_refused(principal: Principal, file_id: str) -> None:
    with pytest.raises(TandemError) as caught:
        create(new(principal), decode_batch(body(file_id)))
    assert (caught.value.param, caught.value.reason) == ("input_file_id", "not_found")


def test_an_endpoint_without_batches_is_refused(principal: Principal, store: Store) -> None:
    asked = body(file_name(store(b"{}").id), endpoint="/v1/embeddings")
    with pytest.raises(TandemError) as caught:
        create(new(principal), decode_batch(asked))
    assert caught.value.param == "endpoint"
    assert "/v1/chat/completions, /v1/responses, /v1/messages" in caught.value.message


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"completion_window": "1h"}, "completion_window"),
        ({"input_file_id": 5}, "input_file_id"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"metadata": {"a" * 65: "x"}}, "metadata"),
        ({"metadata": {"a": "x" * 513}}, "metadata.a"),
        ({"metadata": {"a": "\0"}}, "metadata.a"),
        ({"metadata": {str(n): "x" for n in range(17)}}, "metadata"),
        ({"output_expires_after": {"anchor": "now", "seconds": 3600}}, "output_expires_after."),
        (
            {"output_expires_after": {"anchor": "created_at", "seconds": 3599}},
            "output_expires_after.seconds",
        ),
    ],
    ids=str,
)
def test_a_bad_field_is_refused_by_its_name(changes: dict[str, Any], param: str) -> None:
    with pytest.raises(TandemError) as caught:
        decode_batch(body(**changes))
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert str(caught.value.param).startswith(param)


def test_a_missing_field_is_named() -> None:
    with pytest.raises(TandemError) as caught:
        decode_batch({"endpoint": "/v1/messages", "completion_window": "24h"})
    assert caught.value.message == "input_file_id: Field required"


def test_the_same_key_and_request_make_one_batch(principal: Principal, decoded: BatchBody) -> None:
    first = create(new(principal, idempotency_key="k", request_digest=b"1"), decoded)
    again = create(new(principal, idempotency_key="k", request_digest=b"1"), decoded)
    assert again.id == first.id
    with pytest.raises(TandemError) as caught:
        create(new(principal, idempotency_key="k", request_digest=b"2"), decoded)
    assert caught.value.code is ErrorCode.CONFLICT
    other = msgspec.structs.replace(principal, team_id=2)
    with pytest.raises(TandemError, match="No such File"):
        create(new(other, idempotency_key="k", request_digest=b"1"), decoded)
    assert Batch.objects.count() == 1


def test_the_same_request_at_the_same_time_makes_one_batch(
    principal: Principal, decoded: BatchBody, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = create(new(principal, idempotency_key="k", request_digest=b"1"), decoded)
    answers = iter([None, first])
    monkeypatch.setattr(shared, "find_repeated", lambda new: next(answers))
    again = create(new(principal, idempotency_key="k", request_digest=b"1"), decoded)
    assert again == first


def test_a_used_up_balance_begins_nothing(principal: Principal, decoded: BatchBody) -> None:
    poor = msgspec.structs.replace(principal, prepaid=True)
    with pytest.raises(TandemError) as caught:
        create(new(poor), decoded)
    assert caught.value.code is ErrorCode.BALANCE_EXHAUSTED
    ledger.top_up(1, 1_000_000)
    assert create(new(poor), decoded).status == "validating"
