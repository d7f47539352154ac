"""Rows as the recorder reads and writes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import DataError

from jobs.models import RequestRecord
from jobs.recorder import rows
from jobs.recorder.rows import Row
from jobs.seals import SEAL_AFTER, seal_batch
from tests.records import ENGINE, KEY, new_id

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 8, 7, 12, 0, 0, 123_456, UTC)


def make_row(**fields: Any) -> Row:
    defaults: dict[str, Any] = {"id": new_id(), "created_at": NOW, "team_id": 1, "model": "m"}
    return Row(**(defaults | fields))


def test_a_row_has_every_column_but_the_seal() -> None:
    columns = {field.attname for field in RequestRecord._meta.fields}
    assert set(Row.__struct_fields__) == columns - {"seal_id"}


def test_defaults_are_those_of_the_model() -> None:
    model = RequestRecord(id=new_id(), created_at=NOW)
    row = Row(id=str(model.id), created_at=NOW)
    for name in set(Row.__struct_fields__) - {"id", "team_id", "body_digest", "answer_digest"}:
        assert getattr(row, name) == getattr(model, name), name


def test_what_is_written_is_read_again() -> None:
    row = make_row(
        key_id=KEY,
        engine_id=ENGINE,
        client='"quoted" \\ größe \U0001f600',
        ignored_fields=["speed", 'a "b", {c}'],
        body_digest="\\x" + "62" * 32,
        max_tokens=2**63 - 1,
        deadline_at=NOW + timedelta(seconds=600),
        settled_at=NOW,
        cost_micros=0,
    )
    rows.save([row])
    assert rows.load([row.id, new_id()]) == {row.id: row}
    stored = RequestRecord.objects.get(id=row.id)
    assert (stored.created_at, bytes(stored.body_digest)) == (NOW, b"b" * 32)
    assert stored.ignored_fields == ["speed", 'a "b", {c}']
    assert stored.client == '"quoted" \\ größe \U0001f600'


def test_rows_that_are_there_are_replaced() -> None:
    old, other = make_row(), make_row()
    rows.save([old, other])
    new = make_row(id=old.id, status="completed", closed_at=NOW, key_id=KEY)
    rows.save([new])
    assert rows.load([old.id, other.id]) == {new.id: new, other.id: other}


def test_a_sealed_row_stays_as_it_is() -> None:
    row = make_row(settled_at=NOW)
    rows.save([row])
    assert seal_batch(NOW + 2 * SEAL_AFTER) == 1
    changed = make_row(id=row.id, status="failed")
    rows.save([changed])
    assert rows.load([row.id]) == {row.id: row}


def test_rows_are_overdue_by_what_was_said_last() -> None:
    ago = timedelta(seconds=61)
    due = [
        make_row(deadline_at=NOW - ago),
        make_row(deadline_at=NOW + ago, engine_ended_at=NOW - ago),
        make_row(deadline_at=NOW + ago, closed_at=NOW - ago),
        make_row(taken_at=NOW - ago),
    ]
    rows.save(due)
    rows.save(
        [
            make_row(deadline_at=NOW),
            make_row(deadline_at=NOW - ago, closed_at=NOW),
            make_row(deadline_at=NOW, taken_at=NOW - ago),
            make_row(deadline_at=NOW - ago, settled_at=NOW),
        ]
    )
    before = NOW - timedelta(seconds=60)
    assert {row.id for row in rows.overdue(before, 10)} == {row.id for row in due}
    assert len(rows.overdue(before, 3)) == 3


def test_a_text_that_postgresql_refuses_is_an_error_of_the_data() -> None:
    with pytest.raises(DataError):
        rows.save([make_row(client="\0")])
