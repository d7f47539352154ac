"""How much of an upstream's answer is kept in memory: one that has lost its mind takes no more."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import httpx2

MAX_BODY_BYTES = 32 * 1024 * 1024
"""Of an answer in one piece."""

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""Of one event of a stream."""

_EVENT_STREAM = "text/event-stream"
_EVENT_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")


class RefusedAnswerError(Exception):
    """An answer that is not read: it is compressed, or too much."""


def is_stream(headers: Mapping[str, str]) -> bool:
    """Say whether an answer with these headers is a stream of events."""
    kind = headers.get("content-type", "")
    return kind.partition(";")[0].strip().lower() == _EVENT_STREAM


class Limit:
    """Watches what comes of one answer. Raises `RefusedAnswerError` for one that is compressed."""

    def __init__(self, status: int, headers: Mapping[str, str]) -> None:
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise RefusedAnswerError("it is compressed, which was not asked for")
        self._streams = is_stream(headers) and 200 <= status < 300
        self._most = MAX_EVENT_BYTES if self._streams else MAX_BODY_BYTES
        self._kept = 0

    def add(self, chunk: bytes) -> bytes:
        """Return a piece of the answer. Raises `RefusedAnswerError` if it is too much."""
        # An end that is cut in two is not seen; the next one is.
        ended = max(map(chunk.rfind, _EVENT_ENDS)) if self._streams else -1
        self._kept = self._kept + len(chunk) if ended < 0 else len(chunk) - ended
        if self._kept > self._most:
            raise RefusedAnswerError(f"it sent more than {self._most} bytes at once")
        return chunk


async def limit(response: httpx2.Response) -> None:
    """Have the reading of a response raise `httpx2.ReadError` where it is refused."""
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    try:
        watch = Limit(response.status_code, response.headers)
    except RefusedAnswerError as error:
        raise httpx2.ReadError(str(error)) from None
    response.stream = _Limited(response.stream, watch)


class _Limited(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream, watch: Limit) -> None:
        self._inner = inner
        self._watch = watch

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._inner:
                yield self._watch.add(chunk)
        except RefusedAnswerError as error:
            raise httpx2.ReadError(str(error)) from None

    async def aclose(self) -> None:
        await self._inner.aclose()
