"""The backend that runs servers' tools: it generates, runs what was called, and goes on.

It stands around any other backend, so tools work the same in every lane and dialect. The caller's
own tools are called as ever; where a round calls both, the server's calls are run and the answer
ends for the caller to run the rest.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager

from inference.backends.port import Backend, BackendStats, Tally
from inference.catalogue import ModelEntry
from inference.errors import ErrorCode, TandemError
from inference.events import Event, Failed, FinishReason, ServerToolResult, Started
from inference.mcp.calls import Calls, left_over
from inference.mcp.credit import Credit
from inference.mcp.history import has_server_calls, unanswered
from inference.mcp.names import ListedTool, Offer
from inference.mcp.offering import offers_own, offers_tools
from inference.mcp.pool import McpPool
from inference.mcp.rounds import (
    Conversation,
    Round,
    RoundTally,
    offered,
)
from inference.mcp.session import ServerError, Session
from inference.request import GenerationRequest, RequestedServer, ServerToolCallPart, ToolMode

logger = logging.getLogger(__name__)

MOST_LEFT_OVER = 32
"""Calls that a conversation may leave to the server: no model has made them, and no round limits
them."""


class ToolLoop:
    """A backend that runs the tools of the model's servers, and of those that requests bring.

    A model that has none, or a `tool_recursion_limit` of 0, is offered no tools; calls that the
    conversation holds from earlier are replayed to it all the same. `credit` is asked before each
    round but the first.
    """

    def __init__(
        self, pool: McpPool, entry: ModelEntry, backend: Backend, credit: Credit | None = None
    ) -> None:
        self.capacity = backend.capacity
        self._entry = entry
        self._credit = credit
        self._backend = backend
        self._pool = pool
        self._offers_always = entry.offer_mcp_tools
        self._limit = entry.tool_recursion_limit
        self._servers = entry.mcp_servers if self._limit else ()

    async def start(self) -> None:
        """Load the model while the servers are connected to; they need not be there yet."""
        self._pool.warm(self._servers)
        await self._backend.start()

    def generate(
        self, request: GenerationRequest, tally: Tally | None = None
    ) -> AsyncGenerator[Event]:
        """Run one request, as the port says. `Started` tells of the first round's prompt."""
        if self._concerns(request):
            return self._run(request, tally or Tally())
        return self._backend.generate(request, tally)

    async def count(self, request: GenerationRequest) -> int:
        """Count the first round's prompt, servers' tools included."""
        if not self._concerns(request):
            return await self._backend.count(request)
        async with self._offer(request) as (offer, _):
            return await self._backend.count(offered(request, offer))

    def stats(self) -> BackendStats:
        """The load of the backend inside: while a tool runs, it has none of the request."""
        return self._backend.stats()

    def failure(self) -> str | None:
        """Why the backend inside can no longer serve, or None."""
        return self._backend.failure()

    async def stop(self) -> None:
        """Stop the backend inside. The pool's sessions are other models' too."""
        await self._backend.stop()

    def _concerns(self, request: GenerationRequest) -> bool:
        # What travels to an upstream as it is has no room for more tools.
        if request.raw is not None:
            return False
        # Whether there is any tool to call, the gateway cannot know.
        choice = request.tool_choice.mode
        demands = bool(self._servers) and choice is ToolMode.ANY and not request.tools
        offers = bool(request.servers) or offers_tools(self._entry, request)
        return demands or offers or has_server_calls(request.messages)

    @asynccontextmanager
    async def _offer(
        self, request: GenerationRequest
    ) -> AsyncIterator[tuple[Offer, dict[str, Session]]]:
        """Give the tools that the request is offered, and the sessions to call them in.

        A server of the operator's that is away is done without. Raises `TandemError` for one that
        the caller brought.
        """
        if request.servers and self._limit == 0:
            raise _unusable(request.servers[0], "the model runs no tools")
        if not offers_tools(self._entry, request):
            yield Offer(request.tools, ()), {}
            return
        entries = self._servers if offers_own(self._entry, request) else ()
        own = {entry.name: self._pool.session(entry) for entry in entries}
        for server in request.servers:
            if server.name in own:
                raise _unusable(server, "the operator's servers have one of that name")
        async with self._pool.requested(request.servers) as sessions:
            brought = {session.name: session for session in sessions}
            listed = await asyncio.gather(
                *(_tools(session) for session in own.values()),
                *map(_needed_tools, sessions, request.servers),
            )
            tools = [tool for some in listed for tool in some]
            yield Offer(request.tools, tools), own | brought

    async def _run(self, request: GenerationRequest, tally: Tally) -> AsyncGenerator[Event]:
        try:
            parts = _left_over(request)
            async with self._offer(request) as (offer, sessions):
                calls = Calls(sessions)
                try:
                    conversation = Conversation(request, offer)
                    left = [left_over(part, offer) for part in parts]
                    calls.begin(left)
                    results = [await calls.result(call) for call in left]
                    conversation.add_results(results)
                    async with aclosing(self._rounds(conversation, offer, calls, tally)) as events:
                        async for event in events:
                            yield event
                            if isinstance(event, Started):
                                for result in results:
                                    yield result
                finally:
                    await calls.cancel()
        except TandemError as error:
            yield Failed(code=error.code, message=error.message)

    async def _rounds(
        self, conversation: Conversation, offer: Offer, calls: Calls, tally: Tally
    ) -> AsyncGenerator[Event]:
        """Generate and run tools by turns, until the model has said what it has to say."""
        for number in range(max(1, self._limit)):
            a_round = Round(offer, is_first=number == 0)
            async with aclosing(self._generate(conversation, a_round, tally)) as events:
                async for event in events:
                    yield event
            if a_round.finished is None:
                return
            begun = a_round.server_calls()
            calls.begin(begun)
            results: list[ServerToolResult] = []
            for call in begun:
                yield call.event
                results.append(await calls.result(call))
                yield results[-1]
            if not begun or a_round.is_last:
                yield conversation.end(a_round)
                return
            conversation.go_on(a_round, results)
            if not self._offers_always:
                # The caller demanded one call; left to itself the model may never end.
                conversation.withdraw_tools()
            if reason := await self._why_stop(conversation, is_last=number + 1 == self._limit):
                yield conversation.stop(reason)
                return
        async with aclosing(self._final_round(conversation, offer, tally)) as events:
            async for event in events:
                yield event

    async def _why_stop(self, conversation: Conversation, *, is_last: bool) -> FinishReason | None:
        """Return why there is no further round after this one, if there is none."""
        can_pause = conversation.request.can_pause
        if not conversation.has_room:
            return FinishReason.LENGTH
        if is_last and can_pause:
            return FinishReason.PAUSE
        next_round = conversation.next_round(self._entry.context_tokens)
        if self._credit is None or await self._credit.covers(next_round):
            return None
        # The caller hears of the money when it sends the conversation back.
        return FinishReason.PAUSE if can_pause else FinishReason.LENGTH

    async def _final_round(
        self, conversation: Conversation, offer: Offer, tally: Tally
    ) -> AsyncGenerator[Event]:
        """Let the model make an answer of what it has: the caller cannot send it back."""
        conversation.withdraw_tools()
        a_round = Round(offer, is_first=False)
        async with aclosing(self._generate(conversation, a_round, tally)) as events:
            async for event in events:
                yield event
        if a_round.finished is not None:
            yield conversation.end(a_round)

    async def _generate(
        self, conversation: Conversation, a_round: Round, tally: Tally
    ) -> AsyncGenerator[Event]:
        generated = self._backend.generate(conversation.request, RoundTally(tally))
        async with aclosing(generated) as events:
            async for event in events:
                if (shown := a_round.take(event)) is not None:
                    yield shown


async def _tools(session: Session) -> Sequence[ListedTool]:
    """Return the tools of one of the operator's servers; none while it cannot be used."""
    try:
        return await session.tools()
    except ServerError as error:
        if error.is_news:
            logger.warning("The MCP server %s cannot be used: %s", session.name, error)
        return ()


async def _needed_tools(session: Session, server: RequestedServer) -> Sequence[ListedTool]:
    """Return the tools of a server that the caller brought. Raises INVALID_REQUEST."""
    try:
        return await session.tools()
    except ServerError as error:
        raise _unusable(server, str(error)) from None


def _left_over(request: GenerationRequest) -> Sequence[ServerToolCallPart]:
    """Return the calls to run before the first round. Raises INVALID_REQUEST if they are many."""
    parts = unanswered(request.messages)
    if len(parts) > MOST_LEFT_OVER:
        raise TandemError(
            ErrorCode.INVALID_REQUEST,
            f"messages: the last turn leaves {len(parts)} calls of servers' tools without results, "
            f"and no more than {MOST_LEFT_OVER} are run",
            param="messages",
        )
    return parts


def _unusable(server: RequestedServer, reason: str) -> TandemError:
    message = f"{server.path}: the server '{server.name}' cannot be used: {reason}"
    return TandemError(ErrorCode.INVALID_REQUEST, message, param=server.path)
