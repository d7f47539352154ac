"""An upstream that goes on and on is not kept in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest

from inference.backends import upstream_limits
from inference.backends.upstream_limits import limit

EVENT = b"data: {}\n\n"


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream_limits, "MAX_BODY_BYTES", 100)
    monkeypatch.setattr(upstream_limits, "MAX_EVENT_BYTES", 50)


class _Sent(httpx2.AsyncByteStream):
    def __init__(self, *pieces: bytes) -> None:
        self._pieces = pieces
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece

    async def aclose(self) -> None:
        self.closed = True


async def read(kind: str, *pieces: bytes, status: int = 200) -> bytes:
    sent = _Sent(*pieces)
    response = httpx2.Response(status, headers={"content-type": kind}, stream=sent)
    await limit(response)
    try:
        return await response.aread()
    finally:
        await response.aclose()
        assert sent.closed


async def test_a_body_passes_up_to_its_limit() -> None:
    assert len(await read("application/json", b"x" * 60, b"x" * 40)) == 100
    with pytest.raises(httpx2.ReadError, match="more than 100 bytes"):
        await read("application/json", b"x" * 60, b"x" * 41)


async def test_a_stream_may_be_as_long_as_it_likes() -> None:
    assert await read("text/event-stream; charset=utf-8", *[EVENT * 3] * 100) == EVENT * 300


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
async def test_what_counts_is_what_has_come_since_the_last_event(end: bytes) -> None:
    begun = b"x" * 40 + end + b"y" * 30
    assert await read("text/event-stream", begun, b"y" * 10 + end)
    with pytest.raises(httpx2.ReadError, match="more than 50 bytes"):
        await read("text/event-stream", begun, b"y" * 21)


async def test_an_error_is_read_whole_and_is_no_stream_whatever_it_says() -> None:
    with pytest.raises(httpx2.ReadError, match="more than 100 bytes"):
        await read("text/event-stream", *[EVENT] * 20, status=500)


async def test_what_is_compressed_is_not_unpacked() -> None:
    response = httpx2.Response(200, headers={"content-encoding": "gzip"}, stream=_Sent(b"x"))
    with pytest.raises(httpx2.ReadError, match="compressed"):
        await limit(response)
