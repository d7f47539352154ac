"""Fetching: redirects, limits, and hosts that misbehave."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Iterator

import httpcore
import pytest

from gateway.images.errors import ImageError
from gateway.images.fetch import MAX_REDIRECTS, Fetcher
from tests.conftest import Eventually

MAX_BYTES = 100_000
FOREVER_S = 60.0


class Wire(httpcore.AsyncNetworkStream):
    """A connection that says what it was given, and then ends or stays silent."""

    def __init__(self, chunks: Iterable[bytes], *, hangs: bool = False) -> None:
        self._chunks = iter(chunks)
        self._hangs = hangs
        self.written = b""
        self.reads = 0
        self.closed = False

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        await asyncio.sleep(0)
        self.reads += 1
        chunk = next(self._chunks, b"")
        if not chunk and self._hangs:
            await asyncio.Event().wait()
        return chunk

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self.written += buffer

    async def start_tls(self, *args: object, **kwargs: object) -> httpcore.AsyncNetworkStream:
        return self

    async def aclose(self) -> None:
        self.closed = True


class Hosts(httpcore.AsyncNetworkBackend):
    """Stands for the network: each connection is the next of the given wires."""

    def __init__(self, *wires: Wire) -> None:
        self._wires = iter(wires)
        self.connected: list[tuple[str, int]] = []

    async def connect_tcp(
        self, host: str, port: int, *args: object, **kwargs: object
    ) -> httpcore.AsyncNetworkStream:
        self.connected.append((host, port))
        return next(self._wires)


def answer(body: bytes = b"", status: int = 200, **headers: str) -> bytes:
    headers = {"content_length": str(len(body)), **headers}
    lines = [f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items()]
    return f"HTTP/1.1 {status} Whatever\r\n{''.join(lines)}\r\n".encode() + body


def redirect(location: str, status: int = 302) -> Wire:
    return Wire([answer(status=status, location=location)])


async def fetch(
    *wires: Wire, url: str = "http://host.test/a.png", timeout_s: float = FOREVER_S
) -> bytes:
    fetcher = Fetcher(Hosts(*wires), max_bytes=MAX_BYTES, timeout_s=timeout_s, concurrency=1)
    try:
        return await fetcher.fetch(url)
    finally:
        await fetcher.close()
        assert all(wire.closed or not wire.reads for wire in wires)


async def test_it_returns_the_body_and_says_who_asks() -> None:
    wire = Wire([answer(b"image")])
    assert await fetch(wire, url="http://host.test:8080/a%20b.png?x=1#part") == b"image"
    request, *headers = wire.written.decode().split("\r\n")
    assert request == "GET /a%20b.png?x=1 HTTP/1.1"
    assert "Host: host.test:8080" in headers
    assert "Accept-Encoding: identity" in headers
    assert any(header.startswith("User-Agent: Tandem") for header in headers)
    assert not any(header.lower().startswith(("cookie", "authorization")) for header in headers)


async def test_it_brackets_an_ipv6_host_in_the_header() -> None:
    wire = Wire([answer(b"image")])
    await fetch(wire, url="http://[2606:4700::1]/a.png")
    assert b"Host: [2606:4700::1]\r\n" in wire.written


async def test_it_takes_a_chunked_body() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert await fetch(Wire([head, b"2\r\nim\r\n", b"3\r\nage\r\n0\r\n\r\n"])) == b"image"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_it_follows_redirects(status: int) -> None:
    hosts = Hosts(redirect("https://other.test/b.png", status), Wire([answer(b"image")]))
    fetcher = Fetcher(hosts, max_bytes=MAX_BYTES, timeout_s=FOREVER_S, concurrency=1)
    assert await fetcher.fetch("http://host.test/a.png") == b"image"
    assert hosts.connected == [("host.test", 80), ("other.test", 443)]
    await fetcher.close()


async def test_it_sends_no_cookie_of_one_host_along() -> None:
    first = Wire([answer(status=302, location="/b.png", set_cookie="a=b")])
    second = Wire([answer(b"image")])
    await fetch(first, second)
    assert b"cookie" not in second.written.lower()


async def test_it_stops_after_a_few_redirects() -> None:
    wires = [redirect("/again") for _ in range(MAX_REDIRECTS + 2)]
    with pytest.raises(ImageError, match=r"^more than 3 redirects$"):
        await fetch(*wires)
    assert sum(wire.reads > 0 for wire in wires) == MAX_REDIRECTS + 1


@pytest.mark.parametrize("location", ["http://host.test/", "file:///etc/passwd", ""])
async def test_it_refuses_to_be_redirected_to_something_worse(location: str) -> None:
    with pytest.raises(ImageError):
        await fetch(
            *(redirect(location) for _ in range(MAX_REDIRECTS + 1)), url="https://host.test/"
        )


@pytest.mark.parametrize("status", [204, 206, 304, 400, 403, 404, 500])
async def test_it_takes_nothing_but_200(status: int) -> None:
    with pytest.raises(ImageError, match=rf"^the host answered with status {status}$"):
        await fetch(Wire([answer(status=status)]))


async def test_it_takes_a_body_of_exactly_the_limit() -> None:
    assert len(await fetch(Wire([answer(b"x" * MAX_BYTES)]))) == MAX_BYTES


async def test_it_does_not_read_a_body_that_says_it_is_too_large() -> None:
    wire = Wire([answer(content_length=str(MAX_BYTES + 1))], hangs=True)
    with pytest.raises(ImageError, match=rf"^larger than {MAX_BYTES} bytes$"):
        await fetch(wire)
    assert wire.reads == 1


async def test_it_stops_reading_an_endless_body() -> None:
    def endless() -> Iterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\n\r\n"
        while True:
            yield b"x" * 10_000

    wire = Wire(endless())
    with pytest.raises(ImageError, match=rf"^larger than {MAX_BYTES} bytes$"):
        await fetch(wire)
    assert wire.reads <= 13


@pytest.mark.parametrize(
    "broken",
    [
        answer(b"short", content_length="1000"),
        answer(b"", content_length="many"),
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 100_000,
        b"+PONG\r\n",
        b"",
    ],
    ids=["short", "length", "lengths", "chunk", "coding", "headers", "redis", "nothing"],
)
async def test_it_refuses_an_answer_that_is_no_complete_http(broken: bytes) -> None:
    with pytest.raises(ImageError, match=r"^the host did not give a complete HTTP answer$"):
        await fetch(Wire([broken]))


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "GZIP"])
async def test_it_refuses_a_compressed_body_without_reading_it(coding: str) -> None:
    with pytest.raises(ImageError, match="compressed"):
        await fetch(Wire([answer(b"x", content_encoding=coding)]))


def _silent() -> Wire:
    return Wire([], hangs=True)


def _stalled() -> Wire:
    return Wire([answer(b"x", content_length="1000")], hangs=True)


def _trickling() -> Wire:
    head = answer(content_length=str(MAX_BYTES))
    return Wire(itertools.chain([head], itertools.repeat(b"x", MAX_BYTES)))


@pytest.mark.parametrize("wire", [_silent, _stalled, _trickling])
async def test_it_limits_the_whole_time_and_hangs_up(wire: Callable[[], Wire]) -> None:
    with pytest.raises(ImageError, match=r"^not fetched within 0\.05 s$"):
        await fetch(wire(), timeout_s=0.05)


async def test_an_answer_that_never_gets_to_its_point_runs_into_the_time_limit() -> None:
    def interim() -> Iterator[bytes]:
        while True:
            yield b"HTTP/1.1 103 Early Hints\r\n\r\n"

    with pytest.raises(ImageError, match=r"^not fetched within 0\.05 s$"):
        await fetch(Wire(interim()), timeout_s=0.05)


async def test_redirects_do_not_restart_the_time_limit() -> None:
    wires = [redirect("/b"), redirect("/c"), _stalled()]
    with pytest.raises(ImageError, match="not fetched within"):
        await fetch(*wires, timeout_s=0.05)


async def test_it_fetches_only_so_many_at_a_time(eventually: Eventually) -> None:
    hosts = Hosts(_stalled(), _stalled(), Wire([answer(b"image")]))
    fetcher = Fetcher(hosts, max_bytes=MAX_BYTES, timeout_s=FOREVER_S, concurrency=2)
    tasks = [asyncio.create_task(fetcher.fetch(f"http://{name}.test/")) for name in "abc"]
    await eventually(lambda: len(hosts.connected) == 2)
    for _ in range(100):
        await asyncio.sleep(0)
    assert hosts.connected == [("a.test", 80), ("b.test", 80)]
    tasks[0].cancel()
    assert await tasks[2] == b"image"
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await fetcher.close()
