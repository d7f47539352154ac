"""Database work for code on the event loop."""

from __future__ import annotations

import threading

import pytest
from django.db import OperationalError, connection

from gateway.threads import DatabaseThreads
from inference.errors import ErrorCode, TandemError


async def test_it_works_aside_and_returns_what_comes_of_it() -> None:
    threads = DatabaseThreads(2)
    assert await threads.run(threading.get_ident) != threading.get_ident()
    await threads.stop()


@pytest.mark.django_db
async def test_a_thread_keeps_its_connection_until_the_end() -> None:
    threads = DatabaseThreads(1)

    def backend() -> object:
        connection.ensure_connection()
        return connection.connection

    opened = await threads.run(backend)
    assert await threads.run(backend) is opened
    await threads.stop()
    assert opened.closed  # type: ignore[attr-defined]


async def test_a_database_that_is_away_is_unavailable() -> None:
    def fail() -> None:
        raise OperationalError("gone")

    threads = DatabaseThreads(1)
    with pytest.raises(TandemError) as raised:
        await threads.run(fail)
    assert raised.value.code is ErrorCode.UNAVAILABLE
    await threads.stop()


async def test_other_errors_are_its_callers() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    threads = DatabaseThreads(1)
    with pytest.raises(ZeroDivisionError):
        await threads.run(fail)
    await threads.stop()
