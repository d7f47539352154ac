"""What a team has spent lately: today, yesterday, in a week and in a month, by days in UTC."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from gateway.admin.filters import moment_text
from gateway.admin.links import list_link
from gateway.admin.money import units
from jobs.models import LedgerEntry
from jobs.reports import Usage, UsageFilter, total_usage, usage_by_day

# The first and the last day of each, as days ago.
_WINDOWS = {"Today": (0, 0), "Yesterday": (1, 1), "Last 7 days": (6, 0), "Last 30 days": (29, 0)}
_FIRST = max(first for first, _ in _WINDOWS.values())


def spending_table(team_id: int, today: date) -> SafeString:
    """Return a table with a row for each window, which leads to the ledger's entries of its time.

    The sums are those of the usage by day: it is one query over as many days.
    """
    rows = format_html_join(
        "",
        '<tr><th scope="row">{}</th><td class="amount">{}</td><td class="amount">{}</td>'
        '<td class="amount">{}</td><td class="amount">{}</td></tr>',
        (
            (
                _entries(team_id, name, first, last),
                units(usage.cost_micros),
                f"{usage.requests:,}",
                f"{usage.input_tokens:,}",
                f"{usage.output_tokens:,}",
            )
            for name, first, last, usage in _windows(team_id, today)
        ),
    )
    return format_html(
        '<div class="sideways" tabindex="0" role="region" aria-label="Spend and usage"><table>'
        '<thead><tr><th scope="col">Days in UTC</th>'
        '<th scope="col" class="amount">Spend, in units</th>'
        '<th scope="col" class="amount">Requests</th>'
        '<th scope="col" class="amount">Input tokens</th>'
        '<th scope="col" class="amount">Output tokens</th></tr></thead>'
        "<tbody>{}</tbody></table></div>",
        rows,
    )


def _windows(team_id: int, today: date) -> Iterator[tuple[str, date, date, Usage]]:
    first_day = today - timedelta(days=_FIRST)
    days = usage_by_day(UsageFilter(team_id=team_id, first=first_day, last=today))
    for name, (first_ago, last_ago) in _WINDOWS.items():
        first, last = today - timedelta(days=first_ago), today - timedelta(days=last_ago)
        yield name, first, last, total_usage(day for day in days if first <= day.day <= last)


def _entries(team_id: int, name: str, first: date, last: date) -> SafeString:
    """Return the way to the ledger's entries of these days."""
    since, until = (
        moment_text(datetime.combine(day, time(), tzinfo=UTC))
        for day in (first, last + timedelta(days=1))
    )
    return list_link(LedgerEntry, name, team=team_id, since=since, until=until)
