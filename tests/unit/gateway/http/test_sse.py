"""Frames of a stream, and what keeps a quiet one alive."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from gateway.http.sse import COMMENT, STREAM_HEADERS, Quiet, json_line
from tests.conftest import Eventually


def test_no_proxy_may_hold_a_stream_back() -> None:
    headers = dict(STREAM_HEADERS)
    assert headers[b"content-type"] == b"text/event-stream; charset=utf-8"
    assert headers[b"cache-control"] == b"no-cache, no-transform"
    assert headers[b"x-accel-buffering"] == b"no"


def test_the_comment_is_one_that_clients_skip() -> None:
    assert COMMENT.startswith(b":")
    assert COMMENT.endswith(b"\n\n")


async def test_it_calls_again_and_again_while_nothing_is_sent(eventually: Eventually) -> None:
    calls: list[None] = []
    quiet = Quiet(0.02, lambda: calls.append(None))
    await eventually(lambda: len(calls) >= 3)
    quiet.stop()


async def test_it_does_not_call_while_something_is_sent() -> None:
    calls: list[None] = []
    quiet = Quiet(1.0, lambda: calls.append(None))
    loop = asyncio.get_running_loop()
    end = loop.time() + 1.5
    while loop.time() < end:
        quiet.sent()
        await asyncio.sleep(0.01)
    quiet.stop()
    assert calls == []


async def test_it_does_not_call_after_it_was_stopped(eventually: Eventually) -> None:
    calls: list[None] = []
    stopped = Quiet(0.01, lambda: calls.append(None))
    stopped.stop()
    others: list[None] = []
    other = Quiet(0.02, lambda: others.append(None))
    await eventually(lambda: len(others) >= 2)
    other.stop()
    assert calls == []


@pytest.mark.parametrize("line_break", ["\n", "\r", "\r\n"])
def test_what_is_put_in_as_it_was_written_stands_in_one_line(line_break: str) -> None:
    written = f'{{{line_break}  "a\\n": "é"{line_break}}}'
    line = json_line({"input": msgspec.Raw(written.encode())})
    assert len(line.splitlines()) == 1
    assert msgspec.json.decode(line) == {"input": {"a\n": "é"}}
