"""Models of the catalogue that no engine here runs: for one test, or by an upstream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from inference.transport.nudge import Topic
from tests.acceptance.stack import Stack, insert_upstream
from tests.acceptance.teams import nudge

MODEL = "demo-8b"
UPSTREAM = "partner"
FAR_MODEL = "partner/demo-70b"


def add_far_model(stack: Stack, url: str, fallback: str) -> None:
    """Put a model into the catalogue that the upstream at this address runs."""
    insert_upstream(stack.layout.database_url, UPSTREAM, base_url=url, retries=0)
    stack.add_model(
        FAR_MODEL,
        display_name="Demo 70B at a partner's",
        backend="anthropic",
        upstream_id=UPSTREAM,
        upstream_model="demo-70b",
        fallback_id=fallback,
    )


@contextmanager
def listed(stack: Stack, name: str) -> Iterator[str]:
    """Have a model in the catalogue; afterwards nobody misses its engine."""
    stack.add_model(name)
    try:
        yield name
    finally:
        with psycopg.connect(stack.layout.database_url) as connection:
            connection.execute("UPDATE inference_model SET enabled = false WHERE id = %s", [name])
        nudge(stack, Topic.CATALOGUE)
