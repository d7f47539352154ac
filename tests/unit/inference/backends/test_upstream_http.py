"""The way that raw requests take: what it is set to, and how it tells what goes wrong."""

from __future__ import annotations

import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from inference.backends import upstream_limits
from inference.backends.upstream_health import UpstreamError
from inference.backends.upstream_http import UpstreamHttp
from inference.errors import ErrorCode
from inference.upstreams import UpstreamEntry
from tests.raw_upstream import EVENT_STREAM, RawUpstream, raw_upstream

PATH = "/v1/messages"


@pytest.fixture
def upstream() -> Iterator[RawUpstream]:
    with raw_upstream() as running:
        yield running


@asynccontextmanager
async def http(url: str, **fields: Any) -> AsyncIterator[UpstreamHttp]:
    settings: dict[str, Any] = {
        "name": "up",
        "base_url": url,
        "key": "",
        "connect_timeout_s": 5.0,
        "read_timeout_s": 30.0,
        "retries": 0,
        "requests_per_minute": None,
    } | fields
    running = UpstreamHttp(UpstreamEntry(**settings))
    try:
        yield running
    finally:
        await running.close()


async def body(running: UpstreamHttp, sent: bytes = b"{}", *, streams: bool = False) -> bytes:
    async with running.post(PATH, sent, [], streams=streams) as reply:
        return await reply.whole()


async def failure(url: str, sent: bytes = b"{}", **fields: Any) -> UpstreamError:
    async with http(url, **fields) as running:
        with pytest.raises(UpstreamError) as failed:
            await body(running, sent)
    return failed.value


@pytest.mark.parametrize("size", [2, 5_000_000])
async def test_a_body_of_any_size_arrives_whole(upstream: RawUpstream, size: int) -> None:
    upstream.reply(b"yes")
    async with http(upstream.url + "/") as running:
        assert await body(running, b"x" * size) == b"yes"
    (asked,) = upstream.asked
    assert (asked.path, asked.body) == (PATH, b"x" * size)
    assert asked.header("content-length") == [str(size)]


async def test_the_environments_proxy_is_used(
    upstream: RawUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", upstream.url.removeprefix("http://"))
    upstream.reply(b"by proxy")
    async with http("http://model.test") as running:
        assert await body(running) == b"by proxy"
    assert upstream.asked[0].path == f"http://model.test{PATH}"


async def test_the_environment_says_what_needs_no_proxy(
    upstream: RawUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    upstream.reply(b"direct")
    async with http(upstream.url) as running:
        assert await body(running) == b"direct"


async def test_a_password_of_the_users_own_is_not_sent(
    upstream: RawUpstream, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    upstream.reply(b"yes")
    async with http(upstream.url) as running:
        await body(running)
    assert upstream.asked[0].header("authorization") == []


async def test_an_answer_that_is_compressed_is_not_read(upstream: RawUpstream) -> None:
    upstream.reply(b"x", headers={"content-encoding": "gzip"})
    assert "compressed" in (await failure(upstream.url)).message


async def test_an_answer_without_end_is_not_read_to_its_end(
    upstream: RawUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream_limits, "MAX_BODY_BYTES", 1000)
    upstream.reply(b"x" * 600, b"x" * 600)
    assert "more than 1000 bytes" in (await failure(upstream.url)).message


async def test_an_event_without_end_is_not_either(
    upstream: RawUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream_limits, "MAX_EVENT_BYTES", 1000)
    upstream.reply(b"data: x\n\n" * 300, b"x" * 1200, kind=EVENT_STREAM)
    assert "more than 1000 bytes" in (await failure(upstream.url)).message


async def test_an_answer_that_breaks_off_is_told_of(upstream: RawUpstream) -> None:
    upstream.reply(b"half", cut=True)
    failed = await failure(upstream.url)
    assert (failed.code, failed.passing, failed.down) == (ErrorCode.UNAVAILABLE, True, True)


async def test_who_takes_the_body_in_too_slowly_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        sent = b"x" * 20_000_000
        failed = await failure(url, sent, connect_timeout_s=0.1, read_timeout_s=0.1)
    assert failed.code is ErrorCode.TIMEOUT
    assert "silent" in failed.message


async def test_who_cannot_be_connected_to_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        address = full.getsockname()
        # What fits into the queue of a server that accepts nobody.
        with socket.create_connection(address):
            failed = await failure(f"http://127.0.0.1:{address[1]}", connect_timeout_s=0.1)
    assert failed.message == "the upstream cannot be reached: no connection in 0.1 s"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://127.0.0.1:1", "it refuses the connection"),
        ("http://nowhere.invalid", "its host name cannot be resolved"),
    ],
)
async def test_it_says_why_nobody_is_reached(url: str, reason: str) -> None:
    failed = await failure(url)
    assert failed.message.startswith(f"the upstream cannot be reached: {reason}")
    assert failed.down


async def test_what_speaks_no_http_is_told_of() -> None:
    with socket.create_server(("127.0.0.1", 0)) as strange:
        strange.settimeout(30)

        def talk() -> None:
            connection, _ = strange.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"220 mail.test ESMTP\r\n\r\n")

        thread = threading.Thread(target=talk)
        thread.start()
        failed = await failure(f"http://127.0.0.1:{strange.getsockname()[1]}")
        thread.join()
    assert failed.code is ErrorCode.UNAVAILABLE
