"""Commands that travel together."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis.asyncio
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from inference.transport.courier import Courier


class Counted:
    """A client that counts its pipelines, and whose server can go away or be slow."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client
        self.flights = 0
        self.away = False
        self.gate = asyncio.Event()
        self.gate.set()

    def pipeline(self, transaction: bool) -> Any:
        self.flights += 1
        pipeline = self._client.pipeline(transaction=transaction)
        execute = pipeline.execute

        async def execute_when_it_may(raise_on_error: bool) -> Any:
            await self.gate.wait()
            if self.away:
                raise RedisConnectionError("away")
            return await execute(raise_on_error=raise_on_error)

        pipeline.execute = execute_when_it_may  # type: ignore[method-assign, assignment]
        return pipeline


@pytest.fixture
def counted(client: redis.asyncio.Redis) -> Counted:
    return Counted(client)


@pytest.fixture
def courier(counted: Counted) -> Courier:
    return Courier(counted)  # type: ignore[arg-type]


async def test_commands_of_one_turn_are_one_flight(courier: Courier, counted: Counted) -> None:
    answers = await asyncio.gather(*(courier.send("ECHO", str(number)) for number in range(50)))
    assert answers == [str(number).encode() for number in range(50)]
    assert counted.flights == 1


async def test_commands_that_come_meanwhile_go_with_the_next_flights(
    courier: Courier, counted: Counted
) -> None:
    counted.gate.clear()
    answers = []
    for number in range(20):
        answers.append(courier.send("ECHO", str(number)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert counted.flights == 2
    counted.gate.set()
    assert await asyncio.gather(*answers) == [str(number).encode() for number in range(20)]
    assert counted.flights < 20


async def test_one_command_s_error_is_its_own(courier: Courier) -> None:
    good, bad, other = courier.send("ECHO", "a"), courier.send("NOSUCH"), courier.send("ECHO", "b")
    assert (await good, await other) == (b"a", b"b")
    with pytest.raises(ResponseError, match="unknown command"):
        await bad


async def test_a_lost_connection_is_told_to_everybody_aboard(
    courier: Courier, counted: Counted
) -> None:
    counted.away = True
    answers = [courier.send("ECHO", "a"), courier.send("ECHO", "b")]
    for answer in answers:
        with pytest.raises(RedisConnectionError):
            await answer
    counted.away = False
    assert await courier.send("ECHO", "c") == b"c"


async def test_a_caller_that_leaves_leaves_its_command_on_its_way(
    courier: Courier, client: redis.asyncio.Redis, counted: Counted
) -> None:
    counted.gate.clear()
    leaving = asyncio.ensure_future(courier.send("SET", "courier-left", "1"))
    staying = courier.send("GET", "courier-left")
    await asyncio.sleep(0)
    leaving.cancel()
    counted.gate.set()
    assert await staying == b"1"
    await client.delete("courier-left")


async def test_a_script_is_sent_only_to_a_server_that_does_not_have_it(
    courier: Courier, client: redis.asyncio.Redis
) -> None:
    script = client.register_script("return {KEYS[1], ARGV[1], ARGV[2]}")
    await client.script_flush()
    for _ in range(2):
        assert await courier.run(script, ["key"], [b"a", 2]) == [b"key", b"a", b"2"]


async def test_a_flight_that_is_cancelled_strands_nobody(
    courier: Courier, counted: Counted
) -> None:
    counted.gate.clear()
    answer = courier.send("ECHO", "a")
    await asyncio.sleep(0)
    for flight in courier._flights:
        flight.cancel()
    with pytest.raises(RedisConnectionError, match="closed"):
        await answer
