"""A year of use in the database: how long the pages about it take, and what keeps it in order.

Each page is asked for over HTTP and timed, and once more in this process, where its queries are
caught and PostgreSQL tells how it carries them out.
"""

from __future__ import annotations

import logging
import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psycopg
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from gateway.database import database_settings
from gateway.models import Team
from jobs.models import AuditSeal
from jobs.retention import prune_bodies, prune_seals
from jobs.seals import seal_settled
from jobs.usage_csv import usage_entries, write_csv
from jobs.verification import Verification
from tests.acceptance.stack import Stack
from tests.benchmarks.plots import line_plot
from tests.benchmarks.report import Aim, Section, Table
from tests.many_requests import TEAMS, Filled, fill
from tests.pages import admin_pages, control_pages
from tests.plans import plans_of

_LIMIT_MS = 200
_TIMES = 15
_SMALLER = (10_000, 100_000)
_BODIES = 50_000
_LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)
_PASSWORD = "benchmark"

_METHOD = f"""\
{{rows:,}} requests in the audit trail, their ledger entries and their usage by day, of a year and
{TEAMS} teams; half of all are the team's that asks, a tenth a team's that left half a year ago.
The embedded PostgreSQL runs as `serve` starts it. Each page is fetched {_TIMES} times over HTTP
from one gateway, one at a time, on a kept connection. *Rows read* are those that the longest of its
queries looked at, those that a filter threw away included, by `EXPLAIN (ANALYZE)`; a sequential
scan of a table that grows is reported as wrong. Maintenance is timed in one process, on its own.
Growth is of the same pages, asked for in one process without HTTP, where fewer requests were made
by the same rules."""


@dataclass(frozen=True)
class _Grown:
    """What all pages take with so many requests. `times_ms` has each page's median, by name."""

    rows: int
    times_ms: dict[str, float]
    rows_read: int
    sealed_per_s: str

    @property
    def slowest(self) -> str:
        return max(self.times_ms, key=lambda name: self.times_ms[name])

    @property
    def middle_ms(self) -> float:
        return statistics.median(self.times_ms.values())


def measure(stack: Stack, *, quick: bool) -> Section:
    """Fill the stack's database and measure everything."""
    rows = 100_000 if quick else 1_000_000
    section = Section("The audit trail", _METHOD.format(rows=rows))
    grown = [_grow(stack, fewer) for fewer in _SMALLER if fewer < rows]
    with _django_at(stack.layout.database_url):
        filled, sealed = _filled(rows)
        _pages(section, stack, filled)
        grown.append(_grown(stack, filled, rows, sealed))
        upkeep = [sealed, *_upkeep(section, filled)]
        section.tables.append(Table("Maintenance", ["", "in all", "s", "a second"], upkeep))
        section.tables.append(Table("On disk", ["", "MiB", "bytes a row"], _sizes(rows)))
    _show_growth(section, grown)
    return section


def _filled(rows: int) -> tuple[Filled, list[str]]:
    """Fill the database and seal its trail; return what was made and how long the sealing took."""
    filled = fill(rows, Team.objects.get(name="default").pk)
    sealed = _timed("rows sealed", lambda: [seal_settled(patience_s=3600)])
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
    User.objects.create_superuser("benchmark", password=_PASSWORD)
    return filled, sealed


def _grow(stack: Stack, rows: int) -> _Grown:
    """Measure the pages with so many requests, in a copy of the stack's database."""
    name = f"rows_{rows}"
    url = stack.layout.database_url
    with psycopg.connect(make_conninfo(url, dbname="postgres"), autocommit=True) as server:
        source = conninfo_to_dict(url)["dbname"]
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
        server.execute(statement.format(sql.Identifier(name), sql.Identifier(str(source))))
    with _django_at(make_conninfo(url, dbname=name)):
        filled, sealed = _filled(rows)
        return _grown(stack, filled, rows, sealed)


def _grown(stack: Stack, filled: Filled, rows: int, sealed: list[str]) -> _Grown:
    """Ask for every page in this process."""
    admin = Client()
    admin.force_login(User.objects.get())
    pages = [(name, admin, path) for name, path in admin_pages(filled).items()]
    key = Client(headers={"x-api-key": stack.key})
    pages += [(name, key, path) for name, path in control_pages(filled).items()]
    return _Grown(
        rows=rows,
        times_ms={
            name: statistics.median(_times_ms(client.get, path)) for name, client, path in pages
        },
        rows_read=max(
            plan.rows_read
            for _, client, path in pages
            for plan in plans_of(partial(client.get, path))
        ),
        sealed_per_s=sealed[-1],
    )


def _show_growth(section: Section, grown: list[_Grown]) -> None:
    head = ["requests", "a page in the middle, ms", "the slowest, ms", "which", "most rows read"]
    rows = [
        [
            f"{each.rows:,}",
            f"{each.middle_ms:.1f}",
            f"{each.times_ms[each.slowest]:.1f}",
            f"`{each.slowest}`",
            f"{each.rows_read:,}",
            each.sealed_per_s,
        ]
        for each in grown
    ]
    section.tables.append(Table("Growth", [*head, "rows sealed a second"], rows))
    series = {
        "the slowest page": [(each.rows, each.times_ms[each.slowest]) for each in grown],
        "the page in the middle": [(each.rows, each.middle_ms) for each in grown],
    }
    title = "Pages about requests over requests kept"
    section.plots.append(line_plot(title, "requests in the trail", "p50, ms", series, log_x=True))


@contextmanager
def _django_at(url: str) -> Iterator[None]:
    """Let this process's Django work on another database, as Django's own test runner does."""
    before = connection.settings_dict.copy()
    connection.close()
    connection.settings_dict.update(database_settings(url))
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict.update(before)


def _pages(section: Section, stack: Stack, filled: Filled) -> None:
    """Ask for every page, over HTTP and in this process."""
    url = stack.start_gateway().url
    key = {"x-api-key": stack.key}
    admin = Client()
    admin.force_login(User.objects.get())
    # It would say each of some thousand requests.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    with httpx.Client(base_url=url, headers=key) as remote:
        slowest_ms = [
            _ask(section, "The control API", control_pages(filled), remote, Client(headers=key))
        ]
    with _logged_in(url) as remote:
        slowest_ms += [_ask(section, "The admin", admin_pages(filled), remote, admin)]
    seen_ms = max(slowest_ms)
    section.aims += [
        Aim("Slowest page, p50", f"< {_LIMIT_MS} ms", f"{seen_ms:.0f} ms", met=seen_ms < _LIMIT_MS),
        Aim("Whole tables read", "0", str(len(section.problems)), met=not section.problems),
    ]


def _ask(
    section: Section, title: str, pages: dict[str, str], remote: httpx.Client, local: Client
) -> float:
    """Ask for these pages and put them into a table; return the slowest one's median, in ms."""
    slowest_ms = 0.0
    lines = []
    for name, path in pages.items():
        times_ms = _times_ms(remote.get, path)
        slowest_ms = max(slowest_ms, statistics.median(times_ms))
        plans = plans_of(partial(local.get, path))
        section.problems += [
            f"{name}: reads all of {', '.join(plan.scanned_whole)}: {plan.statement}"
            for plan in plans
            if plan.scanned_whole
        ]
        lines.append(
            [
                f"`{name}`",
                f"{statistics.median(times_ms):.0f}",
                f"{max(times_ms):.0f}",
                f"{max((plan.rows_read for plan in plans), default=0):,}",
                ", ".join(sorted({index for plan in plans for index in plan.indexes})),
            ]
        )
    section.tables.append(Table(title, ["", "p50, ms", "max, ms", "rows read", "indexes"], lines))
    return slowest_ms


@contextmanager
def _logged_in(url: str) -> Iterator[httpx.Client]:
    """Give a client that the admin knows."""
    with httpx.Client(base_url=url) as client:
        client.get("/admin/login/")
        form = {"username": "benchmark", "password": _PASSWORD}
        form["csrfmiddlewaretoken"] = client.cookies["csrftoken"]
        answer = client.post("/admin/login/", data=form, headers={"referer": url})
        assert answer.status_code == httpx.codes.FOUND, answer.text
        yield client


def _times_ms(get: Callable[[str], Any], path: str) -> list[float]:
    times = []
    # The first one fills caches and is not counted.
    for _ in range(_TIMES + 1):
        began_s = time.perf_counter()
        answer = get(path)
        times.append((time.perf_counter() - began_s) * 1000)
        assert answer.status_code == httpx.codes.OK, f"{path}: {answer.content[:300]!r}"
    return times[1:]


def _upkeep(section: Section, filled: Filled) -> list[list[str]]:
    """Verify, export and prune."""
    done = []

    def verify() -> Iterator[int]:
        for checked in Verification().run():
            section.problems += map(str, checked.findings)
            yield checked.rows

    def export() -> Iterator[int]:
        with Path(os.devnull).open("w", encoding="utf-8") as file:
            yield from write_csv(usage_entries(date.min, filled.now.date()), file)

    done.append(_timed("rows verified", verify))
    done.append(_timed("usage lines exported", export))
    _add_old_bodies()
    done.append(
        _timed("bodies of 8 KiB pruned", lambda: prune_bodies(_LONG_AGO + timedelta(days=1)))
    )
    middle = AuditSeal.objects.get(number=max(2, AuditSeal.objects.count() // 5))
    done.append(_timed("rows pruned", lambda: prune_seals(middle.created_at)))
    done.append(_timed("rows vacuumed after that", _vacuum))
    return done


def _vacuum() -> list[int]:
    """Do what autovacuum does by and by, so that the place of deleted rows is used again."""
    with connection.cursor() as cursor:
        cursor.execute("VACUUM jobs_requestrecord")
        cursor.execute("SELECT reltuples FROM pg_class WHERE relname = 'jobs_requestrecord'")
        return [round(cursor.fetchone()[0])]


def _timed(name: str, work: Callable[[], Iterable[int]]) -> list[str]:
    """Return what was done, how long it took and how much that is a second."""
    began_s = time.perf_counter()
    count = sum(work())
    took_s = time.perf_counter() - began_s
    return [name, f"{count:,}", f"{took_s:.1f}", f"{count / took_s:,.0f}"]


def _add_old_bodies() -> None:
    """Add bodies and answers that are long over age, and that nothing can compress."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO jobs_requestbody (record_id, created_at, body, answer)"
            " SELECT gen_random_uuid(), %s, said.data, said.data"
            " FROM generate_series(1, %s) AS n, LATERAL ("
            "   SELECT string_agg(sha256((n * 128 + part)::text::bytea), '') AS data"
            "   FROM generate_series(1, 128) AS part"
            " ) AS said",
            [_LONG_AGO, _BODIES],
        )


def _sizes(rows: int) -> list[list[str]]:
    lines = []
    with connection.cursor() as cursor:
        for name, function in (("table", "pg_table_size"), ("indexes", "pg_indexes_size")):
            cursor.execute(f"SELECT {function}('jobs_requestrecord')")
            (size,) = cursor.fetchone()
            lines.append([f"audit trail, {name}", f"{size / 2**20:,.0f}", f"{size / rows:,.0f}"])
    return lines
