"""Kept connections to Redis, for commands that somebody waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import hiredis
import redis.asyncio
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ResponseError

from inference.transport.connection import SOCKET_TIMEOUT_S, Unreachable

Command = tuple[Any, ...]


class Lines:
    """As many connections as are used at once. Answers are told as Redis gives them.

    Requests wait for these commands: they go neither through redis-py's pool, with its locks, nor
    through what it makes of answers.
    """

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client
        self._idle: list[AbstractConnection] = []

    async def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands together and return their answers, of which some may be errors.

        Raises what `Unreachable` names. Who is cancelled meanwhile costs the connection.
        """
        connection = self._idle.pop() if self._idle else await self._connect()
        try:
            return await _talk(connection, commands)
        except Unreachable:
            # It may have been closed while nothing was sent; connected anew it is as good as any.
            return await _talk(connection, commands)
        finally:
            self._idle.append(connection)

    async def _connect(self) -> AbstractConnection:
        pool = self._client.connection_pool
        connection: AbstractConnection = await pool.get_connection()  # type: ignore[no-untyped-call]
        # Of its own it would give each write and each read a timer; an exchange has one for all.
        connection.socket_timeout = None
        return connection


async def _talk(connection: AbstractConnection, commands: Sequence[Command]) -> list[Any]:
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
