"""The tests' MCP server as the catalogue would have it, and what may be asked of it."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from mcp import Client
from msgspec.structs import replace

from inference.mcp.entry import McpServerEntry
from inference.mcp.names import ListedTool
from inference.mcp.pool import McpPool
from inference.mcp.results import Outcome
from inference.mcp.session import ServerError, Session, SessionRules
from inference.request import GenerationRequest, Message, Owner, RequestedServer
from tests.contracts.requests import make_request

SERVER = Path(__file__).resolve().parents[3] / "mcp_server.py"
OWNER = Owner(team_id=1, key_id="018f0000-0000-7000-8000-000000000000")


def stdio_server(name: str = "tests", **fields: Any) -> McpServerEntry:
    """Return the server as a program."""
    command = (sys.executable, str(SERVER))
    return McpServerEntry(name=name, transport="stdio", command=command, **fields)


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@asynccontextmanager
async def serving(port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the server over HTTP until the end of the block; it listens when the block begins."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(SERVER), str(port)), stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(60):
            while not await _listens(port):
                assert process.returncode is None
                await asyncio.sleep(0.02)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


def callers_request(*messages: str | Message, **fields: Any) -> GenerationRequest:
    """Return a request of a caller's; the service's own are offered no tools."""
    return replace(make_request(*messages, max_tokens=64), owner=OWNER, **fields)


class StubSession(Session):
    """A session with no server behind it: its tools answer from a table, or wait for `gate`."""

    def __init__(self, name: str, answers: Mapping[str, Outcome]) -> None:
        rules = SessionRules(
            allows=lambda _: True, hide=lambda text: text, timeout_s=60, max_output_bytes=1000
        )
        super().__init__(name, _nobody, rules)
        self.calls: list[tuple[str, Mapping[str, Any]]] = []
        self.cancelled: list[str] = []
        self.fault: str | None = None
        self.gate: asyncio.Event | None = None
        self._answers = answers

    async def tools(self) -> tuple[ListedTool, ...]:
        """Return a tool for each answer."""
        if self.fault:
            raise ServerError(self.fault, is_news=True)
        schema = {"type": "object", "properties": {}}
        return tuple(
            ListedTool(server=self.name, name=name, schema=schema, description=f"Tool {name}.")
            for name in self._answers
        )

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> Outcome:
        """Return the answer."""
        self.calls.append((tool, arguments))
        try:
            if self.gate:
                await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.append(tool)
            raise
        return self._answers[tool]


class StubPool(McpPool):
    """A pool of such sessions. `brought` are those that requests' servers lead to."""

    def __init__(self, *sessions: Session, brought: Sequence[Session] = ()) -> None:
        super().__init__()
        self._own = {session.name: session for session in sessions}
        self._brought = list(brought)
        self.open = 0

    def session(self, entry: McpServerEntry) -> Session:
        """Return that of the name."""
        return self._own[entry.name]

    @asynccontextmanager
    async def requested(self, servers: Sequence[RequestedServer]) -> AsyncIterator[list[Session]]:
        """Give those of the sessions that are named."""
        self.open += 1
        names = [server.name for server in servers]
        try:
            yield [session for session in self._brought if session.name in names]
        finally:
            self.open -= 1


def _nobody() -> AbstractAsyncContextManager[Client]:
    raise AssertionError("nobody is there")
