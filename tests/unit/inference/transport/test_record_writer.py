"""Records on their way to the database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis.asyncio
from redis.exceptions import ConnectionError as RedisConnectionError

from inference.events import Usage
from inference.transport import record_writer
from inference.transport.courier import Courier
from inference.transport.keys import Keys
from inference.transport.record_writer import RecordWriter
from inference.transport.records import Closed, Ending, decode_entry, decode_record
from tests.streams import entries_of, until


class Server:
    """A courier whose server can be exchanged under it, and refuse."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._courier = Courier(client)
        self.run_id = "first"
        self.away = False

    def send(self, *command: Any) -> asyncio.Future[Any]:
        answer = asyncio.get_running_loop().create_future()
        if command[0] == "INFO":
            answer.set_result(f"# Server\r\nrun_id:{self.run_id}\r\n".encode())
        elif self.away:
            answer.set_exception(RedisConnectionError())
        else:
            return self._courier.send(*command)
        return answer


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_writer, "_LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(record_writer, "RETRY_AFTER_S", 0.01)


@pytest.fixture
def server(client: redis.asyncio.Redis) -> Server:
    return Server(client)


@pytest.fixture
async def writer(server: Server, keys: Keys) -> AsyncIterator[RecordWriter]:
    made = RecordWriter(server, keys)  # type: ignore[arg-type]
    task = asyncio.create_task(made.run())
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def closed(request_id: str) -> Closed:
    return Closed(
        request_id=request_id,
        at_s=1.0,
        engine_id=None,
        attempts=1,
        first_token_at_s=None,
        ending=Ending.CANCELLED,
        detail="cancelled",
        message="",
        usage=Usage(prompt_tokens=1, cached_tokens=0, output_tokens=0),
    )


async def ids(client: redis.asyncio.Redis, keys: Keys) -> list[str]:
    entries = await entries_of(client, keys.records)
    return [
        decode_record(record).request_id
        for _, fields in entries
        for record in decode_entry(fields[b"r"])
    ]


async def test_it_writes_in_order(
    writer: RecordWriter, client: redis.asyncio.Redis, keys: Keys
) -> None:
    for number in range(600):
        writer.put(closed(str(number)))
    await writer.flushed()
    assert await ids(client, keys) == [str(number) for number in range(600)]


async def test_what_a_restarted_server_may_have_lost_is_written_again(
    writer: RecordWriter, server: Server, client: redis.asyncio.Redis, keys: Keys
) -> None:
    writer.put(closed("a"))
    await writer.flushed()
    # It has been seen alive since: only then is a change a change.
    await until(lambda: _looked(writer))
    await client.delete(keys.records)
    server.run_id = "second"

    async def again() -> bool:
        return await ids(client, keys) == ["a"]

    await until(again)


async def test_what_was_saved_for_sure_is_not_written_again(
    writer: RecordWriter,
    server: Server,
    client: redis.asyncio.Redis,
    keys: Keys,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(record_writer, "_KEEP_S", 0.0)
    writer.put(closed("a"))
    await writer.flushed()
    await until(lambda: _forgotten(writer))
    server.run_id = "second"
    await until(lambda: _looked(writer, "second"))
    await writer.flushed()
    assert await ids(client, keys) == ["a"]


async def test_records_wait_for_a_server_that_is_away(
    writer: RecordWriter, server: Server, client: redis.asyncio.Redis, keys: Keys
) -> None:
    server.away = True
    writer.put(closed("a"))
    writer.put(closed("b"))
    await asyncio.sleep(0)
    assert await ids(client, keys) == []
    server.away = False
    await writer.flushed()
    assert await ids(client, keys) == ["a", "b"]


async def test_a_process_is_not_filled_with_records(
    writer: RecordWriter, server: Server, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.away = True
    monkeypatch.setattr(record_writer, "_MAX_WAITING_BYTES", 1000)
    for number in range(100):
        writer.put(closed(str(number)))
    assert writer.waiting_bytes <= 1000
    server.away = False
    await writer.flushed()


async def _looked(writer: RecordWriter, run_id: str = "first") -> bool:
    return writer.server == run_id


async def _forgotten(writer: RecordWriter) -> bool:
    return writer.server == "first" and not writer.kept
