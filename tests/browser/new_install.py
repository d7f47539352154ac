"""A database that has tables and an operator, and nothing else: that of a new install."""

from __future__ import annotations

import psycopg

from tests.acceptance.stack import Gateway, Stack

_NAME = "pristine"


def keep_pristine(stack: Stack) -> None:
    """Copy the stack's database as it is, less its first key. Nobody may be connected to it."""
    address, _, name = stack.layout.database_url.rpartition("/")
    with psycopg.connect(f"{address}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {_NAME} TEMPLATE {name}")
    with psycopg.connect(database_url(stack)) as connection:
        connection.execute("DELETE FROM gateway_apikey")
        connection.execute("DELETE FROM gateway_team")


def database_url(stack: Stack) -> str:
    """Return the copy's address."""
    return f"{stack.layout.database_url.rpartition('/')[0]}/{_NAME}"


def start_new_install(stack: Stack) -> Gateway:
    """Start a gateway of the copy, which shares nothing with the others."""
    return stack.start_gateway(DATABASE_URL=database_url(stack), REDIS_PREFIX=_NAME)
