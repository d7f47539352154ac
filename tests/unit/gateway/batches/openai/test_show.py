"""A batch as OpenAI's clients see it."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from openai.types import Batch as OpenAIBatch

from gateway.batches.openai.show import batch_name, parse_batch_name, show_batch
from jobs.models import Batch

BATCH_ID = uuid.UUID("01890a5d-ac96-774b-bcce-b302099a8057")
FILE_ID = uuid.UUID("01890a5d-ac96-774b-bcce-b302099a8058")
Status = Batch.Status


def at(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)


def make(**fields: Any) -> Batch:
    known: dict[str, Any] = {
        "id": BATCH_ID,
        "form": Batch.Form.OPENAI,
        "team_id": 1,
        "key_id": uuid.uuid4(),
        "endpoint": "/v1/responses",
        "input_file_ref": FILE_ID,
        "created_at": at(1),
        "expires_at": at(86_401),
    }
    return Batch(**(known | fields))


def show(**fields: Any) -> OpenAIBatch:
    shown = show_batch(make(**fields))
    assert shown.keys() == OpenAIBatch.model_fields.keys() | {"cost_micros"}
    return OpenAIBatch.model_validate(shown, strict=True)


def test_a_new_batch_has_what_is_known_and_nothing_else() -> None:
    shown = show()
    assert shown.id == f"batch_{BATCH_ID}"
    assert shown.object == "batch"
    assert shown.status == "validating"
    assert shown.completion_window == "24h"
    assert shown.input_file_id == f"file-{FILE_ID}"
    assert (shown.created_at, shown.expires_at) == (1, 86_401)
    assert shown.request_counts is not None
    assert shown.request_counts.total == 0
    for empty in ("errors", "metadata", "output_file_id", "error_file_id", "in_progress_at"):
        assert getattr(shown, empty) is None


@pytest.mark.parametrize("status", [Status.COMPLETED, Status.FAILED, Status.EXPIRED])
def test_the_end_is_told_under_its_own_name(status: Status) -> None:
    shown = show(status=status, ended_at=at(9), finalizing_at=at(8))
    names = ("completed_at", "failed_at", "expired_at", "cancelled_at")
    ends = {name: getattr(shown, name) for name in names}
    assert ends == dict.fromkeys(names) | {f"{status}_at": 9}
    assert shown.finalizing_at == 8


def test_a_cancelled_batch_tells_when_it_was_asked_and_when_it_was() -> None:
    shown = show(status=Status.CANCELLED, cancelling_at=at(5), ended_at=at(9))
    assert (shown.cancelling_at, shown.cancelled_at, shown.completed_at) == (5, 9, None)


def test_bug_41_counts_and_files_tell_of_rows_without_an_answer() -> None:
    shown = show(
        status=Status.COMPLETED,
        ended_at=at(9),
        total=10,
        completed=1,
        failed=2,
        cancelled=3,
        expired=4,
        error_file_id=FILE_ID,
    )
    assert shown.request_counts is not None
    assert (shown.request_counts.completed, shown.request_counts.failed) == (1, 9)
    assert (shown.output_file_id, shown.error_file_id) == (None, f"file-{FILE_ID}")


def test_errors_have_all_their_fields() -> None:
    shown = show(status=Status.FAILED, errors=[{"code": "empty_file", "message": "m"}])
    assert shown.errors is not None
    assert shown.errors.data is not None
    (error,) = shown.errors.data
    assert error.model_dump() == {
        "code": "empty_file",
        "message": "m",
        "line": None,
        "param": None,
    }


def test_usage_and_metadata_are_shown() -> None:
    shown = show(
        input_tokens=10,
        cached_tokens=4,
        output_tokens=7,
        thinking_tokens=2,
        metadata={"a": "b"},
        model="m",
    )
    assert shown.usage is not None
    assert shown.usage.total_tokens == 17
    assert shown.usage.input_tokens_details.cached_tokens == 4
    assert shown.usage.output_tokens_details.reasoning_tokens == 2
    assert (shown.metadata, shown.model) == ({"a": "b"}, "m")


@pytest.mark.parametrize("text", ["", "batch_", str(BATCH_ID), f"msgbatch_{BATCH_ID}"])
def test_what_is_no_batchs_id_is_none(text: str) -> None:
    assert parse_batch_name(text) is None
    assert parse_batch_name(batch_name(BATCH_ID)) == BATCH_ID
