"""Turns a batch's file into rows, or says what is wrong with it."""

from __future__ import annotations

from functools import partial

from gateway.batches.openai.lines import check, rows
from gateway.batches.rows import LoadImages, RowReader, Terms
from gateway.serving.models import find_model
from inference.errors import ErrorCode, TandemError
from jobs.batches import BatchError, begin, fail
from jobs.files import open_bytes
from jobs.models import Batch


def validate(batch: Batch, terms: Terms, load_images: LoadImages) -> None:
    """Let a batch's rows run, or end it as failed with all that is wrong with its lines.

    The file is read twice: a batch with a line that is wrong has no rows, and which lines are is
    known only at its end. What a row's own request says is that row's matter: if it cannot be run,
    the row alone has failed. Memory is needed for the names of the rows, and a chunk of them.
    """
    try:
        if batch.input_file is None:
            raise TandemError(ErrorCode.NOT_FOUND, "The input file was deleted.")
        opened = open_bytes(batch.input_file)
    except TandemError as error:
        fail(batch.id, [BatchError(code="file_not_found", message=error.message)])
        return
    with opened:
        found = check(opened, batch.endpoint, partial(find_model, terms.catalogue, terms.principal))
        if found.errors:
            fail(batch.id, found.errors)
            return
        opened.seek(0)
        reader = RowReader(batch.endpoint, terms, load_images)
        begin(batch.id, reader.read_all(rows(opened)))
