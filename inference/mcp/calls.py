"""Calls of servers' tools that one request makes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

from inference.arguments import MALFORMED
from inference.events import ServerToolCall, ServerToolResult
from inference.mcp.names import ListedTool, Offer
from inference.mcp.results import Outcome
from inference.request import ServerToolCallPart, ToolCallPart

MOST_AT_ONCE = 8
"""Calls of one answer that run at the same time: a server is others' as well."""


class Caller(Protocol):
    """Who can call a server's tools: a session."""

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> Outcome:
        """Call a tool by its own name. Whatever goes wrong is an outcome too."""


class Call(NamedTuple):
    """One call. `tool` is None where the request is offered no such tool (any more)."""

    event: ServerToolCall
    tool: ListedTool | None


def called(part: ToolCallPart, tool: ListedTool) -> Call:
    """Return the call that the model made in this answer."""
    event = ServerToolCall(id=part.id, server=tool.server, name=tool.name, arguments=part.arguments)
    return Call(event, tool)


def left_over(part: ServerToolCallPart, offer: Offer) -> Call:
    """Return a call that an earlier answer left to the server."""
    event = ServerToolCall(id=part.id, server=part.server, name=part.name, arguments=part.arguments)
    return Call(event, offer.find(offer.name_of(part.server, part.name)))


class Calls:
    """Runs one answer's calls, those of one round at the same time, up to `MOST_AT_ONCE`."""

    def __init__(self, callers: Mapping[str, Caller]) -> None:
        self._callers = callers
        self._tasks: dict[str, asyncio.Task[Outcome]] = {}
        self._places = asyncio.Semaphore(MOST_AT_ONCE)

    def begin(self, calls: Iterable[Call]) -> None:
        """Begin to run them, or wait for a place to."""
        for call in calls:
            self._tasks[call.event.id] = asyncio.create_task(self._run(call))

    async def result(self, call: Call) -> ServerToolResult:
        """Wait for what a call that was begun comes to."""
        text, is_error = await self._tasks[call.event.id]
        return ServerToolResult(call_id=call.event.id, text=text, is_error=is_error)

    async def cancel(self) -> None:
        """Break off what still runs."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _run(self, call: Call) -> Outcome:
        if call.tool is None:
            return Outcome(f"There is no tool '{call.event.name}' any more.", is_error=True)
        arguments = _arguments(call.event.arguments)
        if arguments is None:
            return Outcome("The arguments are not one JSON object.", is_error=True)
        async with self._places:
            return await self._callers[call.tool.server].call(call.tool.name, arguments)


def _arguments(text: str) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) and MALFORMED not in value else None
