"""Writes many rows by one statement with one parameter: they travel as JSON.

Django's `bulk_create` costs this process seventy times as much, a statement for each row eight
times (docs/decisions/0011). A row is a struct that has the table's columns for fields.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import psycopg
from django.db import connection
from django.db.models import Model

_encoder = msgspec.json.Encoder()


def insert(model: type[Model], rows: Sequence[msgspec.Struct], on_conflict: str = "") -> None:
    """Insert rows of one type; columns that they do not have get the database's defaults."""
    if not rows:
        return
    table, columns = model._meta.db_table, ", ".join(rows[0].__struct_fields__)
    statement = (
        f"INSERT INTO {table} ({columns}) SELECT {columns}"  # noqa: S608
        f" FROM json_populate_recordset(NULL::{table}, %s::json) {on_conflict}"
    )
    connection.ensure_connection()
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        cursor.execute(statement, [_encoder.encode(rows).decode()])


def bytea(data: bytes) -> str:
    """Return how PostgreSQL writes bytes as text, and so in JSON."""
    return f"\\x{data.hex()}"
