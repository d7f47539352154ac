"""One session with an MCP server: opened when it is needed, and anew after it broke."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from typing import Any

import httpx2
import msgspec
from anyio import BrokenResourceError, ClosedResourceError
from mcp import Client, InputRequiredRoundsExceededError, MCPError
from mcp.types import CONNECTION_CLOSED
from mcp.types import Tool as McpTool

from inference.connections import reason_of
from inference.mcp.names import ListedTool
from inference.mcp.results import Outcome, cut, outcome

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 30.0
# A server that could not be used is left alone for so long.
RETRY_AFTER_S = 10.0
# Servers change what they offer while they run.
LISTED_FOR_S = 60.0
MAX_TOOLS = 512
# Models are told all of it.
MAX_LISTED_BYTES = 1024 * 1024
_MAX_REASON_CHARS = 1000

OpenClient = Callable[[], AbstractAsyncContextManager[Client]]

# What can go wrong with a server, in the words of the libraries in between.
_FAULTS = (
    MCPError,
    InputRequiredRoundsExceededError,
    OSError,
    RuntimeError,
    ValueError,
    httpx2.HTTPError,
    BrokenResourceError,
    ClosedResourceError,
    ExceptionGroup,
)


class ServerError(Exception):
    """A server that cannot be used now; the message says why, and holds no secret.

    `is_news`: it was tried just now, not a while ago.
    """

    def __init__(self, reason: str, *, is_news: bool) -> None:
        super().__init__(reason)
        self.is_news = is_news


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRules:
    """What holds for every use of a server.

    `allows` says which of its tools may be called, by their own names; `hide` takes secrets out of
    what it says.
    """

    allows: Callable[[str], bool]
    hide: Callable[[str], str]
    timeout_s: float
    max_output_bytes: int


class Session:
    """A server whose tools are called. Calls may run at the same time."""

    def __init__(self, name: str, open_client: OpenClient, rules: SessionRules) -> None:
        self.name = name
        self._open_client = open_client
        self._rules = rules
        self._held: _HeldClient | None = None
        self._listing: asyncio.Task[None] | None = None
        # When the tools were listed last, or could not be, and why not.
        self._listed_at_s: float | None = None
        self._tools: tuple[ListedTool, ...] = ()
        self._reason = ""
        self._is_news = False
        self._is_doubtful = False

    async def tools(self) -> tuple[ListedTool, ...]:
        """Return the tools that may be called. Raises `ServerError`.

        Only the first use waits for the server. Later on its tools are listed anew while others use
        what is known of them, so that a server which hangs holds nobody up.
        """
        if self._is_due():
            self._listing = asyncio.create_task(self._list())
        if self._listed_at_s is None and self._listing is not None:
            await asyncio.wait([self._listing])
        if self._listed_at_s is None:
            raise ServerError("the session was closed", is_news=False)
        if self._reason:
            is_news, self._is_news = self._is_news, False
            raise ServerError(self._reason, is_news=is_news)
        return self._tools

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> Outcome:
        """Call a tool by its own name. Whatever goes wrong is an outcome too."""
        timeout_s = self._rules.timeout_s
        held = self._hold()
        try:
            async with asyncio.timeout(timeout_s):
                client = await held.client()
                found = outcome(await client.call_tool(tool, dict(arguments)))
        except TimeoutError:
            self._is_doubtful = True
            found = Outcome(f"The tool did not answer within {timeout_s:g} s.", is_error=True)
        except _FAULTS as error:
            # The session may be gone: whoever lists the tools next finds out.
            self._is_doubtful = True
            if _is_closed(error):
                await self._drop(held)
            found = Outcome(self._told(error), is_error=True)
        if not held.is_open:
            await self._drop(held)
        text = cut(self._rules.hide(found.text), self._rules.max_output_bytes)
        return found._replace(text=text)

    async def close(self) -> None:
        """End the session. Harmless when there is none; the next use opens another."""
        if self._listing is not None:
            self._listing.cancel()
            await asyncio.wait([self._listing])
        await self._leave()

    def _is_due(self) -> bool:
        """Say whether the tools are to be listed now."""
        if self._listing is not None and not self._listing.done():
            return False
        if self._listed_at_s is None:
            return True
        age_s = time.monotonic() - self._listed_at_s
        if self._reason:
            return age_s >= RETRY_AFTER_S
        return self._is_doubtful or age_s > LISTED_FOR_S

    async def _list(self) -> None:
        self._is_doubtful = False
        try:
            self._tools, self._reason = await self._found(), ""
        except _FAULTS as error:
            await self._leave()
            self._reason, self._is_news = self._told(error), True
        self._listed_at_s = time.monotonic()

    async def _found(self) -> tuple[ListedTool, ...]:
        """List the tools, in a new session if the one that is there has broken meanwhile."""
        if self._held is not None:
            try:
                return await self._pages()
            except _FAULTS:
                await self._leave()
        return await self._pages()

    async def _pages(self) -> tuple[ListedTool, ...]:
        found: list[ListedTool] = []
        cursor = None
        left = MAX_LISTED_BYTES
        async with asyncio.timeout(self._rules.timeout_s):
            client = await self._hold().client()
            while len(found) < MAX_TOOLS:
                page = await client.list_tools(cursor=cursor)
                allowed = [
                    self._listed(tool) for tool in page.tools if self._rules.allows(tool.name)
                ]
                left -= sum(len(msgspec.json.encode(tool)) for tool in allowed)
                if left < 0:
                    raise ValueError(
                        f"it describes its tools in more than {MAX_LISTED_BYTES} bytes"
                    )
                found += allowed
                cursor = page.next_cursor
                if cursor is None:
                    break
        return tuple(found[:MAX_TOOLS])

    def _listed(self, tool: McpTool) -> ListedTool:
        """Return what models are told of a tool: its server may quote secrets here, too."""
        return ListedTool(
            server=self.name,
            name=tool.name,
            schema=_hidden(tool.input_schema, self._rules.hide),
            description=self._rules.hide(tool.description or tool.title or ""),
        )

    def _told(self, error: BaseException) -> str:
        """Say in one line what went wrong, without secrets."""
        # Spaces may be part of one, and half of one would not be found: hiding comes first.
        return " ".join(self._rules.hide(_reason(error)).split())[:_MAX_REASON_CHARS]

    def _hold(self) -> _HeldClient:
        if self._held is None:
            self._held = _HeldClient(self._open_client)
        return self._held

    async def _leave(self) -> None:
        if self._held is not None:
            await self._drop(self._held)

    async def _drop(self, held: _HeldClient) -> None:
        """Let go of a client, if no other took its place meanwhile."""
        if self._held is held:
            self._held = None
            await held.close()


class _HeldClient:
    """A client that a task of its own holds open: the SDK wants it entered and left by one task."""

    def __init__(self, open_client: OpenClient) -> None:
        self._open_client = open_client
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._closing = asyncio.Event()
        self._task = asyncio.create_task(self._hold())

    @property
    def is_open(self) -> bool:
        """Whether it is connected, or still may be."""
        return not self._task.done()

    async def client(self) -> Client:
        """Wait until it is connected. Raises what connecting raised."""
        either: list[asyncio.Future[Any]] = [self._ready, self._task]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not self._ready.done():
            await self._task
            raise RuntimeError("the session was closed")
        return self._ready.result()

    async def close(self) -> None:
        """Leave the client, connected or not."""
        self._closing.set()
        if not self._ready.done():
            self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled() and (error := self._task.exception()):
            logger.debug("A session with an MCP server ended badly: %s", type(error).__name__)

    async def _hold(self) -> None:
        async with AsyncExitStack() as entered:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                client = await entered.enter_async_context(self._open_client())
            self._ready.set_result(client)
            await self._closing.wait()


def _hidden(value: Any, hide: Callable[[str], str]) -> Any:
    """Return a JSON value without secrets in its texts."""
    match value:
        case str():
            return hide(value)
        case list():
            return [_hidden(each, hide) for each in value]
        case dict():
            return {name: _hidden(each, hide) for name, each in value.items()}
    return value


def _is_closed(error: BaseException) -> bool:
    return isinstance(error, MCPError) and error.code == CONNECTION_CLOSED


def _reason(error: BaseException) -> str:
    """Say what went wrong. The SDK puts errors into groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return "it does not answer"
    return reason_of(error)
