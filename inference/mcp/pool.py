"""The MCP servers that one process talks with: the operator's, and those of single requests.

This module and `clients` load the SDK; the rest of the code does not need it until a tool is run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import msgspec
from mcp import Client

from inference.addresses import Addresses
from inference.mcp.clients import http, open_entry
from inference.mcp.entry import McpServerEntry
from inference.mcp.limits import CheckedTransport
from inference.mcp.session import ServerError, Session, SessionRules
from inference.request import RequestedServer
from inference.secret_references import SecretError, Secrets, hide_secrets

logger = logging.getLogger(__name__)

# For servers that callers bring along; the operator's have their own.
REQUESTED_TIMEOUT_S = 30.0
REQUESTED_OUTPUT_BYTES = 65_536


class McpPool:
    """Sessions with servers. `hosts_allowed` are private ones that requests' servers may be at."""

    def __init__(self, hosts_allowed: Iterable[str] = ()) -> None:
        self._addresses = Addresses(hosts_allowed)
        # By all that their entries say: a catalogue that was read later may say otherwise.
        self._sessions: dict[bytes, Session] = {}
        self._aside: set[asyncio.Task[None]] = set()

    def session(self, entry: McpServerEntry) -> Session:
        """Return the session with a server of the catalogue, the same for all its models."""
        key = msgspec.json.encode(entry)
        if key not in self._sessions:
            self._sessions[key] = open_session(entry)
        return self._sessions[key]

    def warm(self, entries: Iterable[McpServerEntry]) -> None:
        """Begin to connect to these servers, so that the first request need not wait for it."""
        for session in map(self.session, entries):
            self._do_aside(_warm(session))

    @asynccontextmanager
    async def requested(self, servers: Sequence[RequestedServer]) -> AsyncIterator[list[Session]]:
        """Give sessions with servers that a caller brought along, until the end of the block."""
        sessions = [self._requested(server) for server in servers]
        try:
            yield sessions
        finally:
            # The answer does not wait for a server that is slow to say goodbye.
            for session in sessions:
                self._do_aside(session.close())

    async def close(self) -> None:
        """End all sessions."""
        aside = list(self._aside)
        for task in aside:
            task.cancel()
        await asyncio.gather(*aside, return_exceptions=True)
        sessions, self._sessions = list(self._sessions.values()), {}
        await asyncio.gather(*(session.close() for session in sessions))

    def _do_aside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._aside.add(task)
        task.add_done_callback(self._aside.discard)

    def _requested(self, server: RequestedServer) -> Session:
        headers = dict(server.headers)
        if server.token:
            headers["authorization"] = f"Bearer {server.token}"
        transport = partial(CheckedTransport, self._addresses)
        rules = SessionRules(
            allows=server.allows,
            hide=partial(hide_secrets, secrets=list(_secrets(server))),
            timeout_s=REQUESTED_TIMEOUT_S,
            max_output_bytes=REQUESTED_OUTPUT_BYTES,
        )
        open_client = partial(http, server.url, headers, REQUESTED_TIMEOUT_S, transport)
        return Session(server.name, open_client, rules)


def open_session(entry: McpServerEntry) -> Session:
    """Return a session with a server of the catalogue. Its secrets are read when it connects."""
    secrets: list[Secrets] = []

    def open_client() -> AbstractAsyncContextManager[Client]:
        try:
            secrets[:] = [Secrets(entry.secrets)]
        except SecretError as error:
            raise ValueError(str(error)) from None
        return open_entry(entry, secrets[0].values)

    def hide(text: str) -> str:
        return secrets[0].hide(text) if secrets else text

    rules = SessionRules(
        allows=entry.allows,
        hide=hide,
        timeout_s=entry.timeout_s,
        max_output_bytes=entry.max_output_bytes,
    )
    return Session(entry.name, open_client, rules)


def _secrets(server: RequestedServer) -> Iterator[str]:
    """Yield what must not be told, also without a scheme before it, as in `Bearer KEY`."""
    yield server.token or ""
    for value in server.headers.values():
        yield value
        yield value.rpartition(" ")[2]


async def _warm(session: Session) -> None:
    try:
        tools = await session.tools()
    except ServerError as error:
        logger.warning("The MCP server %s cannot be used: %s", session.name, error)
    else:
        logger.info("The MCP server %s has %d tools", session.name, len(tools))
