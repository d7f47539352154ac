"""Sends commands to Redis together: those of one turn of the event loop are one write and one read.

A write to a socket wakes the server and costs more than all else about a small command. Under load
most commands travel in company; one that is alone is not kept waiting for others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import redis.asyncio
from redis.commands.core import AsyncScript
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError

# Two, so that a large command does not hold up everything behind it.
_FLIGHTS = 2
_Command = tuple[Any, ...]
_Answer = asyncio.Future[Any]


class Courier:
    """Commands by way of pipelines. One for each client, on its event loop.

    A caller that is cancelled leaves its command on its way, and costs no connection.
    """

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client
        self._waiting: list[tuple[_Command, _Answer]] = []
        self._flights: set[asyncio.Task[None]] = set()
        self._is_boarding = False

    def script(self, source: str) -> AsyncScript:
        """Return a script to `run`."""
        return self._client.register_script(source)

    def send(self, *command: Any) -> _Answer:
        """Send a command soon; what is returned is its answer, or raises what Redis answers."""
        answer = asyncio.get_running_loop().create_future()
        self._waiting.append((command, answer))
        self._board()
        return answer

    async def run(self, script: AsyncScript, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        """Run a script, which is sent itself only to a server that does not have it."""
        command = ("EVALSHA", script.sha, len(keys), *keys, *arguments)
        try:
            return await self.send(*command)
        except NoScriptError:
            await self.send("SCRIPT LOAD", script.script)
            return await self.send(*command)

    def _board(self) -> None:
        if self._waiting and not self._is_boarding and len(self._flights) < _FLIGHTS:
            self._is_boarding = True
            # Later in this turn, so that everybody who is about to send comes along.
            asyncio.get_running_loop().call_soon(self._take_off)

    def _take_off(self) -> None:
        self._is_boarding = False
        batch, self._waiting = self._waiting, []
        flight = asyncio.get_running_loop().create_task(self._fly(batch))
        self._flights.add(flight)
        # A callback, because a task that is cancelled before its first step runs no code.
        flight.add_done_callback(partial(self._landed, batch))

    def _landed(self, batch: list[tuple[_Command, _Answer]], flight: asyncio.Task[None]) -> None:
        self._flights.discard(flight)
        for _, answer in batch:
            _settle(answer, RedisConnectionError("the client was closed"))
        self._board()

    async def _fly(self, batch: list[tuple[_Command, _Answer]]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for command, _ in batch:
            pipeline.execute_command(*command)
        try:
            results: list[Any] = await pipeline.execute(raise_on_error=False)
        except (RedisError, OSError) as error:
            results = [error] * len(batch)
        for (_, answer), result in zip(batch, results, strict=True):
            _settle(answer, result)


def _settle(answer: _Answer, result: Any) -> None:
    if answer.done():
        return
    if isinstance(result, Exception):
        answer.set_exception(result)
        # Whether anybody still waits for it is not this module's business.
        answer.exception()
    else:
        answer.set_result(result)
