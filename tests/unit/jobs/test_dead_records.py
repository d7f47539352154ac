"""The command for records that could not be written."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from io import StringIO

import pytest
import redis
from django.conf import settings
from django.core.management import call_command

from inference.transport.connection import connect_sync
from inference.transport.keys import Keys
from inference.transport.options import TransportOptions
from jobs.management.commands import dead_records


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> Keys:
    options = TransportOptions(redis_url=settings.REDIS_URL, prefix=f"dead-{secrets.token_hex(4)}")
    monkeypatch.setattr(dead_records, "transport_options", lambda: options)
    monkeypatch.setattr(dead_records, "_AT_ONCE", 2)
    return Keys(options.prefix)


@pytest.fixture
def client(keys: Keys) -> Iterator[redis.Redis]:
    """Return a client of a server on which three records were put aside."""
    with connect_sync(settings.REDIS_URL) as connected:
        for number in range(3):
            dead = {"r": f"record {number}", "id": f"{number}-0", "reason": "DataError: no"}
            connected.xadd(keys.dead_records, dead)
        yield connected
        connected.delete(keys.records, keys.dead_records)


def run(*args: str) -> list[str]:
    output = StringIO()
    call_command("dead_records", *args, stdout=output)
    return output.getvalue().splitlines()


def test_they_are_listed_with_their_reasons(client: redis.Redis, keys: Keys) -> None:
    listed = [f"{number}-0  DataError: no" for number in range(3)]
    assert run() == [*listed, "3 records put aside."]
    assert client.xlen(keys.dead_records) == 3


def test_they_are_put_back(client: redis.Redis, keys: Keys) -> None:
    assert run("--retry")[-1] == "3 records put back."
    assert client.xlen(keys.dead_records) == 0
    found = client.xrange(keys.records)
    assert [fields for _, fields in found] == [  # type: ignore[union-attr]
        {b"r": f"record {number}".encode()} for number in range(3)
    ]


def test_they_are_deleted(client: redis.Redis, keys: Keys) -> None:
    assert run("--delete")[-1] == "3 records deleted."
    assert client.xlen(keys.dead_records) == client.xlen(keys.records) == 0


def test_without_any_there_is_nothing_to_do(keys: Keys) -> None:
    assert run("--retry") == ["0 records put back."]
