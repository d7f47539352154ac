"""The load client against a server that says exactly what the test tells it to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.benchmarks.load import Load, Taken, take

_START: dict[str, Any] = {"type": "message_start", "message": {}}
_END: dict[str, Any] = {
    "type": "message_delta",
    "delta": {"stop_reason": "max_tokens"},
    "usage": {
        "output_tokens": 2,
        "input_tokens": 3,
        "cache_creation_input_tokens": 4,
        "cache_read_input_tokens": 5,
    },
}
_STOP: dict[str, Any] = {"type": "message_stop"}


def _text(text: str) -> dict[str, Any]:
    return {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "text_delta", "text": text},
    }


def _frames(*events: dict[str, Any]) -> bytes:
    return b"".join(
        f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events
    )


def _pieces(body: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


async def _take(body: bytes, *, status: str = "200 OK", whole: bool = True, size: int = 7) -> Taken:
    """Run two requests, one after the other, against a server that gives this answer to each."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r")[0]))
            writer.write(f"HTTP/1.1 {status}\r\ntransfer-encoding: chunked\r\n\r\n".encode())
            for piece in _pieces(body, size):
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                await writer.drain()
            if not whole:
                writer.close()
                return
            writer.write(b"0\r\n\r\n")

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        load = Load(port=port, headers={}, bodies=[{}, {}], concurrency=1, spacing_s=0)
        return await asyncio.to_thread(take, load)


@pytest.mark.parametrize("size", [1, 7, 10_000])
async def test_it_reads_streams_however_they_are_cut(size: int) -> None:
    body = _frames(_START, _text(""), _text("a: b"), _text("\u2028\u00e9"), _END, _STOP)

    taken = await _take(body, size=size)

    assert len(taken.samples) == 2
    for sample in taken.samples:
        assert sample.error == ""
        assert sample.text == "a: b\u2028\u00e9"
        assert (sample.stop_reason, sample.output_tokens) == ("max_tokens", 2)
        assert (sample.prompt_tokens, sample.cached_tokens) == (12, 5)
        assert len(sample.frames_s) == 2
        assert 0 < sample.frames_s[0] <= sample.frames_s[1] <= sample.end_s


async def test_it_calls_a_stream_without_its_last_frame_broken() -> None:
    taken = await _take(_frames(_START, _text("a"), _END))

    assert all("not a whole stream" in sample.error for sample in taken.samples)


async def test_it_calls_a_connection_that_closes_early_broken_and_goes_on() -> None:
    taken = await _take(_frames(_START, _text("a")), whole=False)

    assert ["closed" in sample.error for sample in taken.samples] == [True, True]


async def test_it_reports_an_error_event() -> None:
    error: dict[str, Any] = {"type": "error", "error": {"type": "api_error", "message": "boom"}}

    taken = await _take(_frames(_START, _text("a"), error))

    assert all("boom" in sample.error for sample in taken.samples)


async def test_it_reports_a_refusal_with_its_status() -> None:
    taken = await _take(b'{"type":"error"}', status="529 Overloaded")

    assert all("status 529" in sample.error for sample in taken.samples)
    assert not any(sample.frames_s for sample in taken.samples)
