"""Reads the rows of a batch that have ended, a page at a time: no batch is in memory whole."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from gateway.batches.render import COLUMNS, EndedRow
from jobs.models import Work

_PAGE_ROWS = 200


def page(batch_id: UUID, after_line: int = 0) -> list[EndedRow]:
    """Return the next ended rows after a line, in the order of their lines; empty at the end."""
    rows = Work.objects.filter(batch_id=batch_id, line__gt=after_line, state=Work.State.DONE)
    found = rows.order_by("line").values_list(*COLUMNS)[:_PAGE_ROWS]
    return [EndedRow(**dict(zip(COLUMNS, row, strict=True))) for row in found]


def ended_rows(batch_id: UUID) -> Iterator[EndedRow]:
    """Yield every ended row of a batch, in the order of their lines."""
    line = 0
    while rows := page(batch_id, line):
        yield from rows
        line = rows[-1].line
