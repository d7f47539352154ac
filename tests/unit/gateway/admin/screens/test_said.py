"""Where what was said is found."""

from __future__ import annotations

import json
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from pytest_django import Settings

from gateway.admin.screens.said import Said, Sources, said_by
from inference.events import Finished, FinishReason, Usage
from inference.fold import Answer
from inference.request import TextPart
from jobs import files
from jobs.files import NewFile, Spool
from jobs.models import Batch, StoredFile, StoredResponse, Work
from jobs.packing import pack, pack_answer
from tests.unit.gateway.admin.screens.rows import keep, make_batch, make_record, make_row

pytestmark = pytest.mark.django_db


def said(**found: Any) -> Said:
    nothing = {"team_id": 7, "record": None, "work": None, "response": None}
    return said_by(Sources(**(nothing | found)))


def make_input(*lines: bytes) -> StoredFile:
    with Spool() as spool:
        for line in lines:
            spool.write(line + b"\n")
        new = NewFile(
            id=uuid.uuid4(),
            team_id=7,
            key_id=None,
            filename="rows.jsonl",
            purpose=StoredFile.Purpose.BATCH,
        )
        return files.save(spool, new)


def line_of(body: dict[str, Any]) -> bytes:
    return json.dumps({"custom_id": "a", "body": body}).encode()


def row_of(batch: Batch, line: int) -> Work:
    row = make_row(batch, line, outcome="completed")
    return Work.objects.select_related("batch__input_file").get(pk=row.pk)


def test_the_trail_has_what_was_said_in_realtime() -> None:
    record = make_record()
    keep(record, b'{"input":"Hello"}', TextPart("Hi"))
    assert said(record=record) == Said(b'{"input":"Hello"}', (TextPart("Hi"),))


def test_a_row_s_prompt_is_in_its_batch_s_file_and_its_answer_with_the_row() -> None:
    batch = make_batch(input_file=make_input(line_of({"n": 1}), b"", line_of({"n": 3})))
    found = said(work=row_of(batch, 3))
    assert found.body is not None
    assert json.loads(found.body) == {"n": 3}
    assert found.answer == (TextPart("a3"),)


def test_of_a_row_whose_file_is_gone_the_answer_is_left() -> None:
    found = said(work=row_of(make_batch(), 1))
    assert found.body is None
    assert found.why_not == "The batch's input file is gone."
    assert found.answer == (TextPart("a1"),)


def test_bytes_that_are_gone_are_no_error() -> None:
    file = make_input(line_of({}))
    StoredFile.objects.update(name="2026-01-01/nowhere")
    file.refresh_from_db()
    assert said(work=row_of(make_batch(input_file=file), 1)).body is None


def test_rows_that_were_sent_inline_are_said_to_be_so() -> None:
    assert "inline" in said(work=row_of(make_batch(form="anthropic"), 1)).why_not


def test_a_stored_response_has_both() -> None:
    now = timezone.now()
    end = Finished(
        reason=FinishReason.END, usage=Usage(prompt_tokens=1, cached_tokens=0, output_tokens=1)
    )
    response = StoredResponse.objects.create(
        id=uuid.uuid4(),
        team_id=7,
        key_id=uuid.uuid4(),
        model="tiny",
        lane="background",
        deadline_at=now,
        expires_at=now + timedelta(days=1),
        body=pack(b'{"input":"Hello"}'),
        answer=pack_answer(Answer(parts=(TextPart("Hi"),), finished=end)),
    )
    assert said(response=response) == Said(b'{"input":"Hello"}', (TextPart("Hi"),))


def test_keys_of_other_services_are_never_shown() -> None:
    server = {"type": "url", "url": "https://mcp.example", "authorization_token": "hush"}
    batch = make_batch(input_file=make_input(line_of({"mcp_servers": [server]})))
    found = said(work=row_of(batch, 1))
    assert found.body is not None
    assert b"hush" not in found.body


def test_an_install_that_keeps_nothing_says_so(settings: Settings) -> None:
    settings.TANDEM = settings.TANDEM.model_copy(update={"BODY_RETENTION_DAYS": 0})
    record = make_record()
    keep(record, b'{"input":"Hello"}')
    assert said(record=record) == Said(why_not="This install keeps none.")
