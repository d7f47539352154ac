"""Spend and usage by team and model, of today, yesterday, 7 and 30 days, and balances that run out.

From the usage by day, in UTC. Days that are over are read once, and now and then again in case
something was still being written when they ended.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

import msgspec
from django.db.models import Sum

from gateway.live.parts import Parts, encode
from gateway.live.reading import Reader
from gateway.models import Team
from jobs.models import Account, UsageDay

_PAST_EVERY = timedelta(minutes=10)
_LISTED = 20
# How many days ago the last and the first day of each is.
_WINDOWS = {"today": (0, 0), "yesterday": (1, 1), "week": (0, 6), "month": (0, 29)}
_FIRST_DAY = timedelta(days=max(first for _, first in _WINDOWS.values()))
_WEEK = timedelta(days=7)
_SUMS = ("requests", "input_tokens", "output_tokens", "cost_micros")


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """What one team or model has used. `id` is the team's; the last of a list is all the others."""

    name: str
    id: int | None = None
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_micros: int = 0


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """Some days: all of it, and by team and model, those that cost most first."""

    total: Use
    teams: list[Use]
    models: list[Use]


class Short(NamedTuple):
    """A prepaid team whose balance does not last another day; `day_micros` is its usual day."""

    team_id: int
    name: str
    balance_micros: int
    day_micros: int


class DaySums(NamedTuple):
    """What one team spent on one model on one day."""

    day: date
    team_id: int
    model: str
    sums: Counter[str]


class Purse(NamedTuple):
    """A team's name, and its balance if it is prepaid."""

    name: str
    balance_micros: int | None


class Usage:
    """What was spent."""

    name = "database"
    every_s = 5.0

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._past: list[DaySums] = []
        self._past_at: datetime | None = None
        self.parts: Parts = {}
        self.short: list[Short] = []

    async def look(self, now: datetime) -> None:
        """Read today, and the days before if that is due."""
        today = now.date()
        known = self._past_at
        is_due = known is None or known.date() != today or now - known >= _PAST_EVERY
        first = today - _FIRST_DAY if is_due else today
        found, purses = await self._reader.read(partial(read_usage, first))
        if is_due:
            self._past = [each for each in found if each.day < today]
            self._past_at = now
        of_today = [each for each in found if each.day >= today]
        self.see([*self._past, *of_today], purses, today)

    def see(self, days: Iterable[DaySums], purses: dict[int, Purse], today: date) -> None:
        """Take what was spent, and what the teams have left."""
        days = list(days)
        windows = {
            name: [each for each in days if last <= (today - each.day).days <= first]
            for name, (last, first) in _WINDOWS.items()
        }
        self.short = _short(days, purses, today)
        self.parts = {
            f"usage/{name}": encode(_window(spent, purses)) for name, spent in windows.items()
        }


def read_usage(first: date) -> tuple[list[DaySums], dict[int, Purse]]:
    """Read the usage of all teams from a day on, and every team."""
    rows = UsageDay.objects.filter(day__gte=first).order_by().values("day", "team_id", "model")
    found: Any = rows.annotate(**{f"sum_{name}": Sum(name) for name in _SUMS})
    days = [
        DaySums(
            row["day"],
            row["team_id"],
            row["model"],
            Counter({name: int(row[f"sum_{name}"]) for name in _SUMS}),
        )
        for row in found
    ]
    balances = dict(Account.objects.values_list("team_id", "balance_micros"))
    teams = Team.objects.values_list("pk", "name", "prepaid")
    purses = {
        team_id: Purse(name, balances.get(team_id, 0) if prepaid else None)
        for team_id, name, prepaid in teams
    }
    return days, purses


def _window(days: Iterable[DaySums], purses: dict[int, Purse]) -> Window:
    total: Counter[str] = Counter()
    teams: dict[int, Counter[str]] = defaultdict(Counter)
    models: dict[str, Counter[str]] = defaultdict(Counter)
    for each in days:
        for sums in (total, teams[each.team_id], models[each.model]):
            sums.update(each.sums)
    return Window(
        total=Use(name="", **total),
        teams=_listed(
            Use(name=purses[team_id].name, id=team_id, **sums)
            if team_id in purses
            else Use(name=f"team {team_id}, deleted", **sums)
            for team_id, sums in teams.items()
        ),
        models=_listed(Use(name=model, **sums) for model, sums in models.items()),
    )


def _listed(uses: Iterable[Use]) -> list[Use]:
    """Return those that cost and did most, and one line for the others."""
    ordered = sorted(
        uses, key=lambda use: (-use.cost_micros, -use.input_tokens - use.output_tokens, use.name)
    )
    others = ordered[_LISTED:]
    if not others:
        return ordered
    sums = {name: sum(getattr(use, name) for use in others) for name in _SUMS}
    return [*ordered[:_LISTED], Use(name=f"{len(others)} others", **sums)]


def _short(days: Iterable[DaySums], purses: dict[int, Purse], today: date) -> list[Short]:
    """Find teams that still spend, and would use their balance up within a usual day."""
    spent = dict.fromkeys(purses, 0)
    week, of_today = Counter[int](), Counter[int]()
    for each in days:
        spent[each.team_id] = spent.get(each.team_id, 0) + each.sums["cost_micros"]
        if each.day > today - _WEEK:
            week[each.team_id] += each.sums["cost_micros"]
        if each.day == today:
            of_today[each.team_id] += each.sums["cost_micros"]
    found = []
    for team_id, (name, balance) in purses.items():
        usual = max(week[team_id] // _WEEK.days, of_today[team_id])
        if balance is not None and spent[team_id] and (balance <= 0 or balance < usual):
            found.append(Short(team_id, name, balance, usual))
    return sorted(found, key=lambda short: short.balance_micros)
