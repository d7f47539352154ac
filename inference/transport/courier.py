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

from inference.transport.lines import Command, Lines

# Two, so that a large command does not hold up everything behind it.
_FLIGHTS = 2
_Answer = asyncio.Future[Any]


class Courier:
    """Commands without their answers being interpreted. One for each client, on its event loop.

    A caller that is cancelled leaves its command on its way, and costs no connection.
    """

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client
        self._lines = Lines(client)
        self._waiting: list[tuple[Command, _Answer]] = []
        self._flights: set[asyncio.Task[None]] = set()
        self._is_boarding = False
        self._scripts: dict[str, str] = {}

    def script(self, source: str) -> AsyncScript:
        """Return a script to `run`."""
        script = self._client.register_script(source)
        self._scripts[script.sha] = source
        return script

    def send(self, *command: Any) -> _Answer:
        """Send a command soon; what is returned is its answer, or raises what Redis answers."""
        answer = asyncio.get_running_loop().create_future()
        self._waiting.append((command, answer))
        self._board()
        return answer

    def run(self, script: AsyncScript, keys: Sequence[str], arguments: Sequence[Any]) -> _Answer:
        """Run a script, which is sent itself only to a server that does not have it."""
        return self.send("EVALSHA", script.sha, len(keys), *keys, *arguments)

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

    def _landed(self, batch: list[tuple[Command, _Answer]], flight: asyncio.Task[None]) -> None:
        self._flights.discard(flight)
        for _, answer in batch:
            _settle(answer, RedisConnectionError("the client was closed"))
        self._board()

    async def _fly(self, batch: list[tuple[Command, _Answer]]) -> None:
        try:
            results = await self._lines.exchange([command for command, _ in batch])
        except (RedisError, OSError) as error:
            results = [error] * len(batch)
        for (command, answer), result in zip(batch, results, strict=True):
            if isinstance(result, NoScriptError):
                _, sha, *rest = command
                self._waiting.append((("EVAL", self._scripts[sha], *rest), answer))
            else:
                _settle(answer, result)
        batch.clear()


def _settle(answer: _Answer, result: Any) -> None:
    if answer.done():
        return
    if isinstance(result, Exception):
        answer.set_exception(result)
        # Whether anybody still waits for it is not this module's business.
        answer.exception()
    else:
        answer.set_result(result)
