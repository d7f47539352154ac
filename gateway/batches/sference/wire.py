"""What `POST /v1/batches` takes in sference's form, and how its rows are read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, NoReturn

import msgspec

from gateway.batches.bodies import Buffer, check_unique, decode
from gateway.batches.rows import Row, RowReader
from gateway.dialects.validation import invalid
from inference.errors import TandemError
from jobs.work.enqueue import NewWork

MAX_ROWS = 50_000

# A database's text has no NUL.
_CustomId = Annotated[str, msgspec.Meta(min_length=1, max_length=512, pattern=r"^[^\x00]*\Z")]


class _Request(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    body: msgspec.Raw
    custom_id: _CustomId | None = None


class _Body(msgspec.Struct, forbid_unknown_fields=True):
    requests: Annotated[list[_Request], msgspec.Meta(min_length=1, max_length=MAX_ROWS)]
    window: Literal["24h"] = "24h"


_decoder = msgspec.json.Decoder(_Body)


def decode_rows(body: Buffer) -> Iterator[Row]:
    """Return the rows of a new batch.

    Raises INVALID_REQUEST, before there is a first row, for a body that is none: without rows, with
    more than `MAX_ROWS`, with a field that nobody knows, or with two rows of one name.
    """
    requests = decode(_decoder, body).requests
    check_unique(request.custom_id for request in requests if request.custom_id is not None)
    return (
        Row(line, request.custom_id or "", bytes(request.body))
        for line, request in enumerate(requests, 1)
    )


def read_strictly(reader: RowReader, rows: Iterator[Row]) -> Iterator[NewWork]:
    """Make work of rows that must all be right, and all be for one model.

    Raises INVALID_REQUEST for the first that is not, naming it.
    """
    model = ""
    for work in reader.read_all(rows, _refuse):
        model = model or work.model
        if work.model != model:
            raise invalid(
                f"requests[{work.line - 1}]: body.model is '{work.model}', before it '{model}': "
                "all rows of a batch must be for one model"
            )
        yield work


def _refuse(row: Row, error: TandemError) -> NoReturn:
    named = f" (custom_id '{row.custom_id}')" if row.custom_id else ""
    # Whatever it is, it is the body that is wrong.
    raise invalid(
        f"requests[{row.line - 1}]{named}: {error.message}", param=error.param, reason=error.reason
    )
