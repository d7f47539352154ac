"""A batch's output and error files: whole, the owner's, and once."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from gateway.batches.openai import results
from gateway.batches.openai.results import write_results
from gateway.batches.openai.show import batch_name
from inference.errors import ErrorCode
from inference.transport.records import Ending
from jobs import batches, files
from jobs.files import FileQuery
from jobs.models import Batch, StoredFile
from tests.unit.gateway.batches.openai.conftest import Store
from tests.work import MODEL, finished, new_batch, new_source, result, rows_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _in_a_folder(store: Store, settings: Any) -> None:
    settings.WORK_TERMS = "tests.work.no_terms"


def ended_batch(answers: int, failures: int = 0, bad: int = 0, **fields: Any) -> Batch:
    """Return a batch all of whose rows have ended: run with an answer or not, or never run."""
    batch = new_batch(**fields)
    runs = answers + failures
    rows = [
        *rows_of(batch, runs),
        *rows_of(batch, bad, first=runs + 1, error_code="invalid_request", error_message="no"),
    ]
    batches.begin(batch.id, rows)
    source = new_source(MODEL)
    items = source.claim(runs)
    source.finish(
        [finished(item, f"Hi {item.request.id}") for item in items[:answers]]
        + [
            result(item, ending=Ending.FAILED, detail=ErrorCode.PROMPT_TOO_LONG, message="long")
            for item in items[answers:]
        ]
    )
    source.close()
    batch.refresh_from_db()
    assert batch.status == "finalizing"
    return batch


def written(batch: Batch) -> Batch:
    write_results(batch)
    return Batch.objects.select_related("output_file", "error_file").get(id=batch.id)


def content(file: StoredFile | None) -> list[dict[str, Any]]:
    assert file is not None
    with files.open_bytes(file) as opened:
        return [json.loads(line) for line in opened.read().splitlines()]


def test_answers_go_to_one_file_and_the_rest_to_the_other() -> None:
    batch = written(ended_batch(3, failures=1, bad=1))
    assert (batch.status, batch.completed, batch.failed) == ("completed", 3, 2)
    output, errors = content(batch.output_file), content(batch.error_file)
    assert len({row["custom_id"] for row in output + errors}) == 5
    assert [row["response"]["status_code"] for row in output] == [200] * 3
    assert all(row["error"] is None for row in output)
    assert [row["response"]["status_code"] for row in errors] == [400, 400]
    assert all("error" in row["response"]["body"] for row in errors)


def test_bug_33_34_and_35_the_files_are_listed_and_found_by_their_team_alone() -> None:
    batch = written(ended_batch(1, bad=1))
    listed, _ = files.page(FileQuery(team_id=1, purpose="batch_output"))
    assert {file.id for file in listed} == {batch.output_file_id, batch.error_file_id}
    assert {file.filename for file in listed} == {
        f"{batch_name(batch.id)}_output.jsonl",
        f"{batch_name(batch.id)}_error.jsonl",
    }
    assert files.page(FileQuery(team_id=2))[0] == []


def test_bug_41_a_batch_without_answers_has_no_output_file() -> None:
    batch = written(ended_batch(0, bad=2))
    assert (batch.status, batch.completed, batch.failed) == ("completed", 0, 2)
    assert batch.output_file is None
    assert len(content(batch.error_file)) == 2


def test_a_batch_without_errors_has_no_error_file() -> None:
    batch = written(ended_batch(2))
    assert batch.error_file is None
    assert len(content(batch.output_file)) == 2


@pytest.mark.parametrize(("asked_s", "lasts_s"), [(3600, 3600), (None, 30 * 24 * 3600)])
def test_the_files_last_as_long_as_was_asked_from_when_they_were_made(
    asked_s: int | None, lasts_s: int
) -> None:
    early = timezone.now() - timedelta(hours=5)
    batch = ended_batch(1, output_expires_after_s=asked_s, created_at=early)
    before = timezone.now()
    file = written(batch).output_file
    assert file is not None
    assert file.expires_at is not None
    lasts = timedelta(seconds=lasts_s)
    assert before + lasts <= file.expires_at <= timezone.now() + lasts


def test_who_comes_second_leaves_no_files() -> None:
    batch = ended_batch(1)
    first = written(batch)
    again = written(batch)
    assert again.output_file_id == first.output_file_id
    assert StoredFile.objects.count() == 1


def test_who_dies_in_between_leaves_no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = ended_batch(1)

    def die(*arguments: object, **named: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(results, "finish", die)
        with pytest.raises(KeyboardInterrupt):
            write_results(batch)
    assert StoredFile.objects.count() == 0
    assert written(batch).output_file is not None
