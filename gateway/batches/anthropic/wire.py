"""What `POST /v1/messages/batches` takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec

from gateway.batches.bodies import CUSTOM_ID, Buffer, check_unique, decode
from gateway.batches.rows import Row

MAX_ROWS = 100_000


class _Request(msgspec.Struct, gc=False):
    custom_id: Annotated[str, msgspec.Meta(pattern=CUSTOM_ID)]
    params: msgspec.Raw


class _Body(msgspec.Struct):
    requests: Annotated[list[_Request], msgspec.Meta(min_length=1, max_length=MAX_ROWS)]


_decoder = msgspec.json.Decoder(_Body)


def decode_rows(body: Buffer) -> Iterator[Row]:
    """Return the rows of a new batch.

    Raises INVALID_REQUEST, before there is a first row, for a body that is none: without rows, with
    more than `MAX_ROWS`, or with one that has no name of its own. What `params` say is not looked
    at: a request that is wrong ends by itself, as errored.
    """
    requests = decode(_decoder, body).requests
    check_unique(request.custom_id for request in requests)
    return (
        Row(line, request.custom_id, bytes(request.params))
        for line, request in enumerate(requests, 1)
    )
