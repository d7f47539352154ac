"""Taking, renewing and ending work follow indexes, however many rows wait or are done.

Nothing is timed: PostgreSQL tells which indexes it uses and how many rows it looks at.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, cast

import psycopg
import pytest
from django.db import connection, transaction
from django.utils import timezone
from pytest_django import Settings

from inference.engine.work import WorkItem
from jobs import batches
from jobs.work import leases, pending
from jobs.work.backlog import read_backlog
from jobs.work.cancel import cancel
from jobs.work.enqueue import insert
from jobs.work.queue import Ask, Queue
from jobs.work.source import DatabaseSource
from tests.work import finished, new_batch, new_source, new_work, rows_of

pytestmark = pytest.mark.django_db(transaction=True)

ROWS = 20_000
AT_ONCE = 64
# Of the rows of every table that a statement looks at, for each row that it is about.
READ_PER_ROW = 4
GROWING = {"jobs_work", "jobs_requestrecord", "jobs_ledgerentry"}


class Looked(dict[str, float]):
    """How many rows of each table statements looked at, and which they read whole."""

    whole: set[str]
    indexes: set[str]


@contextmanager
def explained() -> Iterator[Looked]:
    """Tell how all statements of the block are carried out, those of triggers too."""
    looked = Looked()
    looked.whole, looked.indexes = set(), set()

    def take(notice: psycopg.errors.Diagnostic) -> None:
        text = notice.message_primary or ""
        start = text.find("{")
        if text.startswith("duration:") and start >= 0:
            plan, _ = json.JSONDecoder().raw_decode(text[start:])
            note(plan["Plan"], looked)

    session = cast("psycopg.Connection[Any]", connection.connection)
    with connection.cursor() as cursor:
        cursor.execute("LOAD 'auto_explain'")
        for name, value in {
            "auto_explain.log_min_duration": "0",
            "auto_explain.log_analyze": "on",
            "auto_explain.log_timing": "off",
            "auto_explain.log_format": "json",
            "auto_explain.log_level": "notice",
            "auto_explain.log_nested_statements": "on",
            "auto_explain.log_parameter_max_length": "0",
        }.items():
            cursor.execute(f"SET {name} = '{value}'")
    session.add_notice_handler(take)
    try:
        yield looked
    finally:
        session.remove_notice_handler(take)
        with connection.cursor() as cursor:
            cursor.execute("SET auto_explain.log_min_duration = -1")


def note(node: dict[str, Any], looked: Looked) -> None:
    table = node.get("Relation Name")
    if table in GROWING and node["Node Type"] != "ModifyTable":
        thrown = ("Rows Removed by Filter", "Rows Removed by Index Recheck")
        rows = node["Actual Rows"] + sum(node.get(name, 0) for name in thrown)
        looked[table] = looked.get(table, 0) + rows * node["Actual Loops"]
        if node["Node Type"] == "Seq Scan":
            looked.whole.add(table)
    if "Index Name" in node:
        looked.indexes.add(node["Index Name"])
    for child in node.get("Plans", []):
        note(child, looked)


@pytest.fixture
def source(settings: Settings) -> DatabaseSource:
    """Return an engine's source, with many rows that wait, many that are done, and some of others.

    Of the table that grows most, the half is done.
    """
    settings.WORK_TERMS = "tests.work.no_terms"
    done, waiting = new_batch(), new_batch()
    batches.begin(done.pk, rows_of(done, ROWS // 2))
    batches.cancel(done.pk)
    batches.begin(waiting.pk, rows_of(waiting, ROWS // 2))
    other = new_source()
    for _ in range(4):
        other.finish([finished(item) for item in other.claim(250)])
    other.claim(AT_ONCE)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
    return new_source()


def check(looked: Looked, rows: int) -> None:
    assert looked, "nothing was explained"
    assert looked.whole == set()
    assert all(count <= READ_PER_ROW * rows + 10 for count in looked.values()), looked


def test_an_engine_reads_no_more_than_it_takes_and_ends(source: DatabaseSource) -> None:
    with explained() as looked:
        items = source.claim(AT_ONCE)
    check(looked, AT_ONCE)
    assert "work_next" in looked.indexes
    with explained() as looked:
        assert source.renew([item.request.id for item in items]) == set()
    check(looked, AT_ONCE)
    assert "work_running" in looked.indexes
    with explained() as looked:
        source.finish([finished(item) for item in items[2:]])
    check(looked, AT_ONCE)
    assert "jobs_work_pkey" in looked.indexes
    with explained() as looked:
        assert cancel(items[0].request.id)
        source.give_back([items[1].request.id])
        source.close()
    check(looked, 2)
    # The metrics look at what runs: here what the other engine has taken.
    with explained() as looked:
        read_backlog()
    check(looked, AT_ONCE)
    # What is rare is found without a look at everything.
    now = timezone.now()
    insert([new_work(created_at=now, deadline_at=now + timedelta(seconds=1)) for _ in range(2)])
    with explained() as looked:
        assert pending.expire(now + timedelta(seconds=2))[0] == 2
        leases.reap(now)
    check(looked, 2)
    assert "work_deadline" in looked.indexes


def test_many_rows_of_one_team_neither_hide_those_of_another_nor_are_looked_through(
    source: DatabaseSource,
) -> None:
    insert(new_work(team_id=2) for _ in range(10))
    with explained() as looked:
        items = source.claim(AT_ONCE)
    check(looked, AT_ONCE)
    assert Counter(team_of(item) for item in items) == {1: AT_ONCE - 10, 2: 10}
    # A team that is short of money for now, with all of its rows.
    queue = Queue(source._engine)
    insert(new_work(team_id=3) for _ in range(4))
    with explained() as looked, transaction.atomic():
        assert [each.row.team_id for each in queue.take(Ask(4, not_of={1}))] == [3] * 4
    check(looked, AT_ONCE)


def test_of_many_teams_no_more_are_looked_at_than_can_get_a_place(source: DatabaseSource) -> None:
    insert(new_work(team_id=team) for team in range(2, 1_002) for _ in range(5))
    seen: set[int] = set()
    for places in (AT_ONCE, 1, AT_ONCE, 8):
        with explained() as looked:
            items = source.claim(places)
        teams = {team_of(item) for item in items}
        assert len(teams) == places
        assert not teams & seen
        check(looked, places + len(seen))
        seen |= teams


def test_the_urgent_are_found_among_many(source: DatabaseSource) -> None:
    now = timezone.now()
    near = {"created_at": now - timedelta(days=1), "deadline_at": now + timedelta(minutes=5)}
    insert(new_work(team_id=2, **near) for _ in range(20))
    with explained() as looked:
        assert pending.rise(now) == 20
    check(looked, 20)
    assert "work_deadline" in looked.indexes
    with explained() as looked:
        assert {team_of(item) for item in source.claim(10)} == {2}
    check(looked, 10)
    assert "work_urgent" in looked.indexes


def team_of(item: WorkItem) -> int:
    assert item.request.owner is not None
    return item.request.owner.team_id
