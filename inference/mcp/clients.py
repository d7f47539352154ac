"""Opens sessions with MCP servers, over the standard streams of a program or over HTTP."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TextIO

import httpx2
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CONNECTION_CLOSED, CallToolResult, Implementation

from inference.engine.guardian import mark
from inference.mcp.entry import McpServerEntry
from inference.mcp.limits import LimitedTransport, plain_transport

_BUILTIN = ("-m", "inference.mcp.builtin")
_ROOT = Path(__file__).resolve().parents[2]
_SILENCE_S = 300.0
# What the SDK says where a status is all that a server has said.
_STAND_INS = ("Not Found", "Server returned an error response")
_TANDEM = Implementation(name="tandem", version="1")


@asynccontextmanager
async def stdio(entry: McpServerEntry, secrets: Mapping[str, str]) -> AsyncIterator[Client]:
    """Start a server's program and talk with it. It ends with the session.

    It has the secrets as variables beside a few harmless ones, and nothing else of the
    environment. What it writes to its standard error is dropped: that may hold secrets.
    """
    command, folder = list(entry.command), None
    if entry.transport == "builtin":
        command, folder = [sys.executable, *_BUILTIN], _ROOT
    parameters = StdioServerParameters(
        command=command[0], args=command[1:], env={**secrets, **mark()}, cwd=folder
    )
    with _nowhere() as nowhere:
        transport = stdio_client(parameters, errlog=nowhere)
        with _explained(_ended):
            async with Client(transport, client_info=_TANDEM) as client:
                yield unchecked(client)


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")


@asynccontextmanager
async def http(
    url: str,
    headers: Mapping[str, str],
    timeout_s: float,
    transport: Callable[[], httpx2.AsyncBaseTransport],
) -> AsyncIterator[Client]:
    """Talk with a server over streamable HTTP. The environment's proxies are not used."""
    limited = LimitedTransport(transport())
    # A server may hold its stream open and say nothing; how long a call may take is not seen here.
    timeout = httpx2.Timeout(timeout_s, read=_SILENCE_S)

    def refused(error: MCPError) -> str | None:
        said = "" if error.message in _STAND_INS else f": {error.message}"
        return limited.error_status and f"it answers {limited.error_status} at this URL{said}"

    with _explained(refused):
        async with (
            httpx2.AsyncClient(
                headers=dict(headers), timeout=timeout, transport=limited, trust_env=False
            ) as sender,
            Client(streamable_http_client(url, http_client=sender), client_info=_TANDEM) as client,
        ):
            yield unchecked(client)


@contextmanager
def _explained(explain: Callable[[MCPError], str | None]) -> Iterator[None]:
    """Raise `ConnectionError` where there is more to say than the SDK does, which has few words for
    a server that it could not connect to."""
    try:
        yield
    except* MCPError as group:
        if (reason := explain(_first(group))) is None:
            raise
        raise ConnectionError(reason) from None


def _first(group: BaseExceptionGroup[MCPError]) -> MCPError:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


def _ended(error: MCPError) -> str | None:
    return "its program ended" if error.code == CONNECTION_CLOSED else None


def unchecked(client: Client) -> Client:
    """Have a client not hold results against the schemas that its server names for them.

    Only their text is used; and a pattern that takes for ever, in the schema of a stranger's
    server, would stop everything that runs on this event loop.
    """
    client.session.validate_tool_result = _anything  # type: ignore[method-assign]
    return client


async def _anything(name: str, result: CallToolResult) -> None:
    """Take a result as it is."""


def open_entry(
    entry: McpServerEntry, secrets: Mapping[str, str]
) -> AbstractAsyncContextManager[Client]:
    """Return a server of the catalogue, to be entered."""
    if entry.transport == "http":
        return http(entry.url, secrets, entry.timeout_s, plain_transport)
    return stdio(entry, secrets)
