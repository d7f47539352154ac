"""A batch's results as files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.admin.screens.batch_lines import lines_of
from gateway.batches import results
from tests.unit.gateway.admin.screens.rows import make_batch, make_row


def read(pieces: Iterator[bytes]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in b"".join(pieces).splitlines()]


@pytest.mark.django_db
@pytest.mark.parametrize("form", ["openai", "anthropic", "sference"])
def test_rows_with_an_answer_and_rows_without_are_files_of_their_own(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Several pages, one of which has nothing for the file.
    monkeypatch.setattr(results, "_PAGE_ROWS", 2)
    batch = make_batch(form=form)
    for line in (1, 2, 3):
        make_row(batch, line, outcome="completed")
    for line, outcome in ((4, "failed"), (5, "expired"), (6, "cancelled")):
        make_row(batch, line, outcome=outcome, error_code="invalid_request")
    make_row(batch, 7)
    good = read(lines_of(batch, completed=True))
    bad = read(lines_of(batch, completed=False))
    assert [line["custom_id"] for line in good] == ["row-1", "row-2", "row-3"]
    assert [line["custom_id"] for line in bad] == ["row-4", "row-5", "row-6"]
    assert "a1" in json.dumps(good[0])
