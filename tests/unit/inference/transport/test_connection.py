"""Connections to Redis."""

from __future__ import annotations

import asyncio

import pytest
import redis.asyncio

from inference.transport.keys import Keys


async def test_a_cancelled_command_is_never_taken_for_a_finished_one(
    client: redis.asyncio.Redis, keys: Keys
) -> None:
    # Cancelled after each number of turns of the loop: one of them is where the write ends.
    for turns in range(30):
        await client.ping()
        task = asyncio.ensure_future(client.get(keys.engines))
        for _ in range(turns):
            await asyncio.sleep(0)
        if task.cancel():
            with pytest.raises(asyncio.CancelledError):
                await task


async def test_the_reply_of_a_cancelled_command_is_not_given_to_the_next(
    client: redis.asyncio.Redis, keys: Keys
) -> None:
    await client.set(keys.engines, b"wrong")
    for turns in range(30):
        task = asyncio.ensure_future(client.get(keys.engines))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        assert await client.echo(b"right") == b"right"


async def test_a_burst_of_commands_waits_for_connections(client: redis.asyncio.Redis) -> None:
    await asyncio.gather(*(client.ping() for _ in range(500)))
    assert len(await client.client_list()) < 200
