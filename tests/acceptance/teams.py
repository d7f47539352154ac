"""Teams, keys and prices, put straight into a stack's database."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import psycopg
from django.db.models import Model

from gateway.keys import give_secret
from gateway.models import ApiKey, Team
from inference.transport.nudge import Topic
from jobs.models import Price
from tests.acceptance.stack import Stack

MICROS = 1_000_000
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Member:
    """A team with one key."""

    team_id: int
    team_name: str
    key_id: str
    key: str


def make_member(stack: Stack, *, key: dict[str, Any] | None = None, **team: Any) -> Member:
    """Put a team into the database, with the given fields, and a key of it."""
    row = Team(**({"name": f"team-{next(_numbers)}"} | team))
    team_id = insert(stack, row)
    api_key = ApiKey(**({"name": "acceptance", "team_id": team_id} | (key or {})))
    plaintext = give_secret(api_key)
    insert(stack, api_key)
    nudge(stack, Topic.KEYS)
    return Member(team_id, row.name, str(api_key.id), plaintext)


def set_price(stack: Stack, model: str, **fields: int) -> None:
    """Price a model from now on: a micro-unit a token of input, two of output, unless told so."""
    prices = {
        "input_micros_per_mtok": MICROS,
        "cached_input_micros_per_mtok": MICROS // 10,
        "cache_write_micros_per_mtok": MICROS,
        "output_micros_per_mtok": 2 * MICROS,
    }
    insert(stack, Price(model=model, **(prices | fields)))
    nudge(stack, Topic.PRICES)


def nudge(stack: Stack, topic: Topic) -> None:
    """Tell the gateways."""
    stack.redis.publish(stack.keys.nudges, topic)


def insert(stack: Stack, row: Model) -> Any:
    """Write a row that Django made, and return its key."""
    fields = [field for field in row._meta.concrete_fields if field.pre_save(row, True) is not None]
    columns = ", ".join(str(field.column) for field in fields)
    marks = ", ".join("%s" for _ in fields)
    values = [getattr(row, field.attname) for field in fields]
    table, key = row._meta.db_table, row._meta.pk.column
    with psycopg.connect(stack.layout.database_url) as connection:
        found = connection.execute(
            f"INSERT INTO {table} ({columns}) VALUES ({marks}) RETURNING {key}",  # noqa: S608
            values,
        ).fetchone()
    assert found is not None
    return found[0]


def rows(stack: Stack, query: str, *values: Any) -> list[tuple[Any, ...]]:
    """Ask the stack's database."""
    with psycopg.connect(stack.layout.database_url) as connection:
        return connection.execute(query, values).fetchall()
