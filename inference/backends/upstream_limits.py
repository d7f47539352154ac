"""How much of an upstream's answer is kept in memory: one that has lost its mind takes no more."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2

MAX_BODY_BYTES = 32 * 1024 * 1024
"""Of an answer in one piece."""

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""Of one event of a stream."""

_EVENT_STREAM = "text/event-stream"
_EVENT_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")


def is_stream(response: httpx2.Response) -> bool:
    """Say whether a response is a stream of events."""
    kind: str = response.headers.get("content-type", "")
    return kind.partition(";")[0].strip().lower() == _EVENT_STREAM


async def limit(response: httpx2.Response) -> None:
    """Have the reading of a response raise `httpx2.ReadError` where it is too much."""
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise httpx2.ReadError("it is compressed, which was not asked for")
    response.stream = _Limited(response.stream, streams=is_stream(response) and response.is_success)


class _Limited(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream, *, streams: bool) -> None:
        self._inner = inner
        self._streams = streams

    async def __aiter__(self) -> AsyncIterator[bytes]:
        most = MAX_EVENT_BYTES if self._streams else MAX_BODY_BYTES
        kept = 0
        async for chunk in self._inner:
            # An end that is cut in two is not seen; the next one is.
            ended = max(map(chunk.rfind, _EVENT_ENDS)) if self._streams else -1
            kept = kept + len(chunk) if ended < 0 else len(chunk) - ended
            if kept > most:
                raise httpx2.ReadError(f"it sent more than {most} bytes at once")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
