"""Files that the admin's pages offer: made piece by piece, no faster than the client takes them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.http import HttpRequest, StreamingHttpResponse

from gateway.http.pace import SEND, Pace
from gateway.http.slow_reader import Send


def download(
    request: HttpRequest, pieces: Iterator[bytes], name: str, content_type: str
) -> StreamingHttpResponse:
    """Answer with a file of that name; the pieces are asked for one by one, in a thread."""
    scope: dict[str, Any] | None = getattr(request, "scope", None)
    return StreamingHttpResponse(
        # A server without an event loop takes pieces when it can send them.
        pieces if scope is None else paced(pieces, scope[SEND]),
        content_type=content_type,
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


async def paced(pieces: Iterator[bytes], send: Send) -> AsyncIterator[bytes]:
    """Yield the pieces no faster than the client takes what its server is sent by `send`."""
    following = sync_to_async(partial(next, pieces, None))
    with Pace(send, settings.TANDEM.REQUEST_TIMEOUT_S) as pace:
        while (piece := await following()) is not None:
            if not await pace.wait():
                return
            yield piece
