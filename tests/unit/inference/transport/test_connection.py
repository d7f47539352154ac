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


@pytest.mark.parametrize(
    "value", [7, 0.1, "\xfc \r\n$1", b"\x00\xff", memoryview(b"view"), b"x" * 70_000]
)
async def test_a_value_of_any_kind_arrives(
    client: redis.asyncio.Redis, keys: Keys, value: int | float | str | bytes | memoryview
) -> None:
    told = str(value) if isinstance(value, int | float) else value
    pipeline = client.pipeline(transaction=True)
    pipeline.set(keys.engines, value)
    pipeline.get(keys.engines)
    assert await pipeline.execute() == [True, told.encode() if isinstance(told, str) else told]


async def test_what_is_no_value_is_refused_before_it_is_sent(
    client: redis.asyncio.Redis, keys: Keys
) -> None:
    with pytest.raises(redis.DataError):
        await client.set(keys.engines, object())  # type: ignore[arg-type]
    assert await client.echo(b"well") == b"well"
