"""Makes a batch of a file: at once, without a look into it."""

from __future__ import annotations

from functools import partial

from django.db import transaction
from msgspec import structs

from gateway.batches.creation import NewBatch, insert, make_once
from gateway.batches.endpoints import ENDPOINTS
from gateway.batches.openai.wire import BatchBody
from gateway.dialects.validation import invalid, invalid_at
from gateway.files.names import parse_file_name
from inference.errors import ErrorCode, TandemError
from jobs import files
from jobs.batches import VALIDATE_TASK
from jobs.models import Batch, StoredFile
from jobs.work.enqueue import send


def create(new: NewBatch, body: BatchBody) -> Batch:
    """Make a batch that is to be validated; return it, or the one made by the same request.

    What is wrong with the file's content is for the validation to say: clients poll for it.
    Raises INVALID_REQUEST naming the field that is wrong, BALANCE_EXHAUSTED, CONFLICT for an
    idempotency key that another request had. Reads the database.
    """
    if body.endpoint not in ENDPOINTS:
        raise invalid_at("endpoint", f"must be one of {', '.join(ENDPOINTS)}")

    def make() -> Batch:
        batch = _insert(new, body)
        transaction.on_commit(partial(send, VALIDATE_TASK, str(batch.id)))
        return batch

    return make_once(new, make)


def _input_file(name: str, team_id: int) -> StoredFile:
    file_id = parse_file_name(name)
    try:
        if file_id is None:
            raise TandemError(ErrorCode.NOT_FOUND, f"No such File object: {name[:100]}")
        file = files.find(file_id, team_id)
    except TandemError as error:
        raise invalid(error.message, param="input_file_id", reason="not_found") from None
    if file.purpose != StoredFile.Purpose.BATCH:
        raise invalid_at(
            "input_file_id", f"the file's purpose must be batch, and is {file.purpose}"
        )
    return file


def _insert(new: NewBatch, body: BatchBody) -> Batch:
    file, expiry = _input_file(body.input_file_id, new.principal.team_id), body.output_expires_after
    return insert(
        structs.replace(new, endpoint=body.endpoint),
        metadata=body.metadata or {},
        input_file=file,
        input_file_ref=file.id,
        output_expires_after_s=expiry.seconds if expiry else None,
    )
