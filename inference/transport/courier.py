"""Sends commands to Redis together: those of one turn of the event loop are one write and one read.

A write to a socket wakes the server and costs more than all else about a small command. Under load
most commands travel in company; one that is alone is not kept waiting for others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import hiredis
import redis.asyncio
from redis.asyncio.connection import AbstractConnection
from redis.commands.core import AsyncScript
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError, ResponseError

from inference.transport.connection import SOCKET_TIMEOUT_S, Unreachable

# Two, so that a large command does not hold up everything behind it.
_FLIGHTS = 2
_Command = tuple[Any, ...]
_Answer = asyncio.Future[Any]


class Courier:
    """Commands without their answers being interpreted. One for each client, on its event loop.

    A caller that is cancelled leaves its command on its way, and costs no connection.
    """

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client
        self._waiting: list[tuple[_Command, _Answer]] = []
        self._flights: set[asyncio.Task[None]] = set()
        self._is_boarding = False
        self._scripts: dict[str, str] = {}
        self._idle: list[AbstractConnection] = []

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

    def _landed(self, batch: list[tuple[_Command, _Answer]], flight: asyncio.Task[None]) -> None:
        self._flights.discard(flight)
        for _, answer in batch:
            _settle(answer, RedisConnectionError("the client was closed"))
        self._board()

    async def _fly(self, batch: list[tuple[_Command, _Answer]]) -> None:
        try:
            results = await self._exchange([command for command, _ in batch])
        except (RedisError, OSError) as error:
            results = [error] * len(batch)
        for (command, answer), result in zip(batch, results, strict=True):
            if isinstance(result, NoScriptError):
                _, sha, *rest = command
                self._waiting.append((("EVAL", self._scripts[sha], *rest), answer))
            else:
                _settle(answer, result)
        batch.clear()

    async def _exchange(self, commands: Sequence[_Command]) -> list[Any]:
        connection = self._idle.pop() if self._idle else await self._connect()
        try:
            return await _talk(connection, commands)
        except Unreachable:
            # It may have been closed while nothing was sent; connected anew it is as good as any.
            return await _talk(connection, commands)
        finally:
            self._idle.append(connection)

    async def _connect(self) -> AbstractConnection:
        """Take a connection for good: to borrow one from the pool costs as much as to use it."""
        pool = self._client.connection_pool
        connection: AbstractConnection = await pool.get_connection()  # type: ignore[no-untyped-call]
        # Of its own it would give each write and each read a timer; a flight has one for all.
        connection.socket_timeout = None
        return connection


async def _talk(connection: AbstractConnection, commands: Sequence[_Command]) -> list[Any]:
    is_whole = False
    try:
        async with asyncio.timeout(SOCKET_TIMEOUT_S):
            packed = b"".join(map(hiredis.pack_command, commands))
            await connection.send_packed_command(packed)
            answers = [await _answer_to(connection) for _ in commands]
        is_whole = True
    finally:
        if not is_whole:
            # What it says later would be taken for the answer to something else.
            await connection.disconnect(nowait=True)
    return answers


async def _answer_to(connection: AbstractConnection) -> Any:
    try:
        return await connection.read_response()
    except ResponseError as error:
        return error


def _settle(answer: _Answer, result: Any) -> None:
    if answer.done():
        return
    if isinstance(result, Exception):
        answer.set_exception(result)
        # Whether anybody still waits for it is not this module's business.
        answer.exception()
    else:
        answer.set_result(result)
