"""The clerk: it records whatever happens to its servers, and ends when it is told to."""

from __future__ import annotations

import psycopg
import pytest

from tests.acceptance.stack import Stack, ending, eventually
from tests.records import admitted, closed, completed, entry_of, new_id

pytestmark = pytest.mark.acceptance


def tell(stack: Stack) -> str:
    """Write what a gateway and an engine say of one request, and return its id."""
    request_id = new_id()
    told = entry_of(admitted(request_id), completed(request_id), closed(request_id))
    stack.redis.xadd(stack.keys.records, {"r": told})
    return request_id


def wait_until_recorded(stack: Stack, request_id: str) -> None:
    with psycopg.connect(stack.layout.database_url, autocommit=True) as connection:

        def is_recorded() -> bool:
            found = connection.execute(
                "SELECT 1 FROM jobs_requestrecord WHERE id = %s AND settled_at IS NOT NULL",
                [request_id],
            )
            return found.fetchone() is not None

        eventually(is_recorded, f"request {request_id} is recorded")


def test_it_records_again_when_postgresql_and_redis_are_back(stack: Stack) -> None:
    with ending(stack.start_clerk()) as clerk:
        wait_until_recorded(stack, tell(stack))
        stack.restart_postgres()
        wait_until_recorded(stack, tell(stack))
        stack.restart_valkey()
        wait_until_recorded(stack, tell(stack))
        assert clerk.alive


def test_another_one_takes_over_when_the_one_that_records_is_killed(stack: Stack) -> None:
    with ending(stack.start_clerk()) as first:
        wait_until_recorded(stack, tell(stack))
        with ending(stack.start_clerk()):
            first.kill()
            wait_until_recorded(stack, tell(stack))


def test_it_ends_when_told_to(stack: Stack) -> None:
    with ending(stack.start_clerk()) as clerk:
        wait_until_recorded(stack, tell(stack))
        assert clerk.stop() == 0
