"""A batch's results as lines of a file: what is there by now, in the form of its own API.

They are made from the rows, so that they can be had while the batch still runs, and whichever API
it was made by. No more than a page of rows is in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gateway.batches.render import EndedRow, anthropic_line, openai_line, sference_row
from gateway.batches.results import page
from jobs.models import Batch


def lines_of(batch: Batch, *, completed: bool) -> Iterator[bytes]:
    """Yield the lines of rows that have an answer, or of those that ended without, page by page."""
    render = _RENDER[batch.form]
    last = 0
    while rows := page(batch.pk, last):
        last = rows[-1].line
        lines = b"".join(render(row) for row in rows if row.completed == completed)
        if lines:
            yield lines


def _sference_line(row: EndedRow) -> bytes:
    return sference_row(row) + b"\n"


_RENDER: dict[str, Callable[[EndedRow], bytes]] = {
    Batch.Form.OPENAI: openai_line,
    Batch.Form.ANTHROPIC: anthropic_line,
    Batch.Form.SFERENCE: _sference_line,
}
