"""The load client against a server that says exactly what the test tells it to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.benchmarks.load import CHAT, MESSAGES, Load, Taken, take

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


def _chunks(*chunks: dict[str, Any], done: bytes = b"data: [DONE]\n\n") -> bytes:
    return b"".join(f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks) + done


def _chunk(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {"usage": None, "choices": [{"delta": delta, "finish_reason": finish_reason}]}


async def _take(
    body: bytes,
    *,
    status: str = "200 OK",
    whole: bool = True,
    size: int = 7,
    path: str = MESSAGES,
) -> Taken:
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
        load = Load(port=port, path=path, headers={}, bodies=[{}, {}], concurrency=1)
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


async def test_it_sends_what_is_due_although_nothing_is_answered_yet() -> None:
    at_s = [0.0, 0.05, 0.1]
    all_here = asyncio.Barrier(len(at_s))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.split(b"content-length: ")[1].split(b"\r")[0])
        name = json.loads(await reader.readexactly(size))["name"]
        await all_here.wait()
        body = _frames(_START, _text(name), _END, _STOP)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        bodies = [{"name": name} for name in "abc"]
        taken = await asyncio.to_thread(take, Load(port=port, headers={}, bodies=bodies, at_s=at_s))

    assert [sample.error for sample in taken.samples] == ["", "", ""]
    assert [sample.text for sample in taken.samples] == ["a", "b", "c"]
    # A timer's resolution may be a millisecond.
    assert all(
        sample.sent_s > due_s - 0.01 for sample, due_s in zip(taken.samples, at_s, strict=True)
    )


async def test_it_calls_a_stream_without_its_last_frame_broken() -> None:
    taken = await _take(_frames(_START, _text("a"), _END))

    assert all("not a whole stream" in sample.error for sample in taken.samples)


@pytest.mark.parametrize("choices", [[], [{"index": 0, "delta": {}}]])
async def test_it_reads_streams_of_chat(choices: list[Any]) -> None:
    usage = {"choices": choices, "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    role = {"role": "assistant", "content": ""}
    chunks = [_chunk(role), _chunk({"content": "a"}), _chunk({"content": " b"})]

    taken = await _take(_chunks(*chunks, _chunk({}, "length"), usage), path=CHAT)

    for sample in taken.samples:
        assert sample.error == ""
        assert sample.text == "a b"
        assert len(sample.frames_s) == 2
        assert (sample.stop_reason, sample.output_tokens) == ("length", 2)
        assert sample.prompt_tokens == 3


async def test_it_calls_a_stream_of_chat_without_its_last_frame_broken() -> None:
    body = _chunks(_chunk({"content": "a"}), _chunk({}, "length"), done=b"")

    taken = await _take(body, path=CHAT)

    assert all("not a whole stream" in sample.error for sample in taken.samples)


async def test_it_reports_an_error_within_a_stream_of_chat() -> None:
    taken = await _take(_chunks({"error": {"message": "boom"}}), path=CHAT)

    assert all("boom" in sample.error for sample in taken.samples)


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
