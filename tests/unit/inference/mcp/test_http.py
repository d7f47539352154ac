"""A real MCP server over streamable HTTP: the operator's, and one that a request brings along."""

from __future__ import annotations

from collections.abc import AsyncIterator
from ipaddress import ip_address

import httpx2
import pytest

from inference.addresses import Address, Addresses
from inference.mcp import limits
from inference.mcp.entry import McpServerEntry
from inference.mcp.limits import CheckedTransport, resolve_host
from inference.mcp.pool import McpPool
from inference.mcp.session import ServerError, Session
from inference.request import RequestedServer
from tests.conftest import Eventually
from tests.unit.inference.mcp.servers import free_port, serving

KEY = "sk-http-secret"


@pytest.fixture
async def port() -> AsyncIterator[int]:
    port = free_port()
    async with serving(port):
        yield port


@pytest.fixture
async def pool() -> AsyncIterator[McpPool]:
    pool = McpPool(["127.0.0.1", "good.test"])
    yield pool
    await pool.close()


def _entry(port: int, **secrets: str) -> McpServerEntry:
    url = f"http://127.0.0.1:{port}/mcp"
    return McpServerEntry(name="web", transport="http", url=url, secrets=secrets, timeout_s=20)


def _brought(port: int, **fields: object) -> RequestedServer:
    server = {"name": "web", "url": f"http://127.0.0.1:{port}/mcp", "token": KEY} | fields
    return RequestedServer(**server)  # type: ignore[arg-type]


class _Nothing(httpx2.AsyncByteStream):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b""


async def test_tools_are_listed_and_called_with_the_secret_in_a_header(
    port: int, pool: McpPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEB_KEY", KEY)
    session = pool.session(_entry(port, Authorization="Bearer ${env:WEB_KEY}"))
    assert "echo" in [tool.name for tool in await session.tools()]
    assert await session.call("echo", {"text": "grüß dich"}) == ("grüß dich", False)
    # It was sent, or there would be nothing to hide.
    said = await session.call("read_header", {"name": "Authorization"})
    assert said == ("Bearer [secret]", False)


async def test_an_answer_that_is_too_large_is_not_read(
    port: int, pool: McpPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_ANSWER_BYTES", 100_000)
    session = pool.session(_entry(port))
    _, is_error = await session.call("repeat", {"text": "x" * 1000, "times": 2000})
    assert is_error
    assert await session.call("echo", {"text": "still here"}) == ("still here", False)


async def test_a_compressed_answer_is_not_unpacked() -> None:
    asked = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.headers["accept-encoding"])
        return httpx2.Response(200, headers={"content-encoding": "gzip"}, stream=_Nothing())

    transport = limits.LimitedTransport(httpx2.MockTransport(answer))
    async with httpx2.AsyncClient(transport=transport) as client:
        with pytest.raises(httpx2.ReadError, match="compressed"):
            await client.get("http://server.test/mcp")
    assert asked == ["identity"]


async def test_a_server_that_was_started_anew_is_found_again(pool: McpPool) -> None:
    port = free_port()
    session = pool.session(_entry(port))
    async with serving(port):
        assert await session.tools()
    _, is_error = await session.call("echo", {"text": "hello"})
    assert is_error
    async with serving(port):
        assert await session.tools()
        assert await session.call("echo", {"text": "again"}) == ("again", False)


async def test_a_server_that_is_not_there_is_an_error(pool: McpPool) -> None:
    with pytest.raises(ServerError):
        await pool.session(_entry(free_port())).tools()


async def test_a_server_that_a_request_brings_is_called_with_its_token(
    port: int, pool: McpPool
) -> None:
    async with pool.requested([_brought(port, enabled=False, exceptions=("read_header",))]) as got:
        (session,) = got
        assert [tool.name for tool in await session.tools()] == ["read_header"]
        said = await session.call("read_header", {"name": "Authorization"})
        assert said == ("Bearer [secret]", False)


async def test_a_server_that_a_request_brings_is_called_with_its_headers(
    port: int, pool: McpPool
) -> None:
    headers = {"x-key": "sk-hidden", "authorization": "Basic sk-hidden-too"}
    async with pool.requested([_brought(port, token=None, headers=headers)]) as got:
        (session,) = got
        said = [await session.call("read_header", {"name": name}) for name in headers]
        assert said == [("[secret]", False), ("[secret]", False)]
        named = await session.call("echo", {"text": "It is sk-hidden-too."})
        assert named == ("It is [secret].", False)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.2:{port}/mcp",
        "http://[::1]:{port}/mcp",
        "http://localhost:{port}/mcp",
        "http://169.254.169.254/latest",
    ],
)
async def test_a_request_s_server_is_looked_for_at_allowed_addresses_only(
    port: int, pool: McpPool, url: str
) -> None:
    pool = McpPool(["127.0.0.3"])
    async with pool.requested([_brought(port, url=url.format(port=port))]) as got:
        with pytest.raises(ServerError):
            await got[0].tools()


async def test_a_host_is_connected_to_at_the_address_that_was_checked(port: int) -> None:
    asked: list[str] = []

    async def resolve(host: str) -> list[Address]:
        asked.append(host)
        # Nobody is at the first.
        return [ip_address("127.0.0.9"), ip_address("127.0.0.1")]

    transport = CheckedTransport(Addresses(["good.test"]), resolve)
    async with httpx2.AsyncClient(transport=transport) as client:
        answer = await client.get(f"http://good.test:{port}/nothing")
        assert answer.status_code == 404
        assert answer.request.url.host == "good.test"
        with pytest.raises(httpx2.ConnectError, match="no public address"):
            await client.get(f"http://bad.test:{port}/nothing")
    assert asked == ["good.test", "bad.test"]


async def test_a_name_that_nobody_knows_has_no_address() -> None:
    assert await resolve_host("surely.unknown.invalid") == []


async def test_nothing_is_left_of_a_request_s_sessions(
    port: int, pool: McpPool, eventually: Eventually
) -> None:
    async with pool.requested([_brought(port)]) as got:
        assert await got[0].tools()
        session: Session = got[0]
    await eventually(lambda: session._held is None)
