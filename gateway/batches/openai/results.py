"""Writes what became of a batch's rows into its output file and its error file."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import uuid_utils
from django.db import transaction
from django.utils import timezone

from gateway.batches.openai.show import batch_name
from gateway.batches.render import openai_line
from gateway.batches.results import ended_rows
from gateway.files.wire import BATCH_EXPIRY_S
from jobs.batches import finish
from jobs.files import NewFile, Spool, save
from jobs.models import Batch, StoredFile


def write_results(batch: Batch) -> None:
    """Write the files of a batch whose rows have all ended, and end it.

    Rows with an answer go to the output file, all others to the error file; a file that would be
    empty is not made. The files appear in the transaction that ends the batch.
    """
    with Spool() as output, Spool() as errors:
        for row in ended_rows(batch.id):
            (output if row.completed else errors).write(openai_line(row))
        with transaction.atomic():
            output_id = _save(batch, output, "output")
            error_id = _save(batch, errors, "error")
            ended = finish(batch.id, output_file=output_id, error_file=error_id)
            if (ended.output_file_id, ended.error_file_id) != (output_id, error_id):
                # Somebody else has ended it, with other files.
                transaction.set_rollback(True)


def _save(batch: Batch, spool: Spool, kind: str) -> UUID | None:
    if not spool.size_bytes:
        return None
    lasts_s = batch.output_expires_after_s or BATCH_EXPIRY_S
    file = save(
        spool,
        NewFile(
            id=UUID(str(uuid_utils.uuid7())),
            team_id=batch.team_id,
            key_id=batch.key_id,
            filename=f"{batch_name(batch.id)}_{kind}.jsonl",
            purpose=StoredFile.Purpose.BATCH_OUTPUT,
            expires_at=timezone.now() + timedelta(seconds=lasts_s),
        ),
    )
    return file.id
