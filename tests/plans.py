"""What PostgreSQL does for a page: which indexes it uses, and how many rows it looks at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.many_requests import TABLES


@dataclass(frozen=True)
class Plan:
    """How one statement was carried out. `rows_read` counts those that a filter threw away too."""

    statement: str
    indexes: frozenset[str]
    scanned_whole: frozenset[str]
    rows_read: int


def plans_of(ask: Callable[[], object]) -> list[Plan]:
    """Do something, and return the plans of all its queries of the tables that grow."""
    with CaptureQueriesContext(connection) as captured:
        ask()
    statements = [query["sql"] for query in captured.captured_queries]
    return [_explain(sql) for sql in statements if _is_of_interest(sql)]


def _is_of_interest(sql: str) -> bool:
    return sql.lstrip().startswith(("SELECT", "WITH")) and any(table in sql for table in TABLES)


def _explain(sql: str) -> Plan:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {sql}")
        ((plan,),) = cursor.fetchone()
    nodes = list(_nodes(plan["Plan"]))
    return Plan(
        statement=sql,
        indexes=frozenset(node["Index Name"] for node in nodes if "Index Name" in node),
        scanned_whole=frozenset(
            node["Relation Name"]
            for node in nodes
            if node["Node Type"] == "Seq Scan" and node["Relation Name"] in TABLES
        ),
        rows_read=round(sum(map(_rows_read, nodes))),
    )


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", []):
        yield from _nodes(child)


def _rows_read(node: dict[str, Any]) -> float:
    if node.get("Relation Name") not in TABLES:
        return 0
    thrown = ("Rows Removed by Filter", "Rows Removed by Index Recheck")
    rows = node["Actual Rows"] + sum(node.get(name, 0) for name in thrown)
    return float(rows * node["Actual Loops"])
