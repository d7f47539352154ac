"""Commands that travel together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
import redis.asyncio
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from inference.transport import lines as lines_module
from inference.transport.courier import Courier
from inference.transport.lines import Command, Lines


class Counted(Lines):
    """Lines that count what they carry, and whose server can go away or be slow."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        super().__init__(client)
        self.flights = 0
        self.away = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def exchange(self, commands: Sequence[Command]) -> list[Any]:
        self.flights += 1
        await self.gate.wait()
        if self.away:
            raise RedisConnectionError("away")
        return await super().exchange(commands)


class Watched(Courier):
    """A courier that is seen at work."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        super().__init__(client)
        self._lines = self.lines = Counted(client)


@pytest.fixture
async def courier(client: redis.asyncio.Redis) -> Watched:
    return Watched(client)


async def test_commands_of_one_turn_are_one_flight(courier: Watched) -> None:
    answers = await asyncio.gather(*(courier.send("ECHO", str(number)) for number in range(50)))
    assert answers == [str(number).encode() for number in range(50)]
    assert courier.lines.flights == 1


async def test_commands_that_come_meanwhile_go_with_the_next_flights(courier: Watched) -> None:
    courier.lines.gate.clear()
    answers = []
    for number in range(20):
        answers.append(courier.send("ECHO", str(number)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert courier.lines.flights == 2
    courier.lines.gate.set()
    assert await asyncio.gather(*answers) == [str(number).encode() for number in range(20)]
    assert courier.lines.flights < 20


async def test_one_command_s_error_is_its_own(courier: Watched) -> None:
    good, bad, other = courier.send("ECHO", "a"), courier.send("NOSUCH"), courier.send("ECHO", "b")
    assert (await good, await other) == (b"a", b"b")
    with pytest.raises(ResponseError, match="unknown command"):
        await bad


async def test_a_lost_connection_is_told_to_everybody_aboard(courier: Watched) -> None:
    courier.lines.away = True
    answers = [courier.send("ECHO", "a"), courier.send("ECHO", "b")]
    for answer in answers:
        with pytest.raises(RedisConnectionError):
            await answer
    courier.lines.away = False
    assert await courier.send("ECHO", "c") == b"c"


async def test_a_caller_that_leaves_leaves_its_command_on_its_way(
    courier: Watched, client: redis.asyncio.Redis
) -> None:
    courier.lines.gate.clear()
    leaving = asyncio.ensure_future(courier.send("SET", "courier-left", "1"))
    staying = courier.send("GET", "courier-left")
    await asyncio.sleep(0)
    leaving.cancel()
    courier.lines.gate.set()
    assert await staying == b"1"
    await client.delete("courier-left")


async def test_a_script_is_sent_only_to_a_server_that_does_not_have_it(
    courier: Watched, client: redis.asyncio.Redis
) -> None:
    script = courier.script("return {KEYS[1], ARGV[1], ARGV[2]}")
    await client.script_flush()
    for _ in range(2):
        assert await courier.run(script, ["key"], [b"a", 2]) == [b"key", b"a", b"2"]


async def test_a_flight_that_is_cancelled_strands_nobody(courier: Watched) -> None:
    courier.lines.gate.clear()
    answer = courier.send("ECHO", "a")
    await asyncio.sleep(0)
    for flight in courier._flights:
        flight.cancel()
    with pytest.raises(RedisConnectionError, match="closed"):
        await answer


async def test_a_connection_that_was_closed_meanwhile_is_replaced(
    courier: Watched, client: redis.asyncio.Redis
) -> None:
    address = await courier.send("CLIENT", "ID")
    await client.client_kill_filter(_id=str(address))
    assert await courier.send("ECHO", "a") == b"a"
    assert await courier.send("CLIENT", "ID") != address


async def test_an_answer_that_is_late_is_nobody_else_s(
    courier: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await courier.send("ECHO", "warm") == b"warm"
    with monkeypatch.context() as patch:
        patch.setattr(lines_module, "SOCKET_TIMEOUT_S", 0.01)
        with pytest.raises(TimeoutError):
            await courier.send("BLPOP", "courier-nothing", "0.2")
    assert await courier.send("ECHO", "a") == b"a"
