"""Spend and usage by team and model, of today, yesterday, 7 and 30 days, and balances that run out.

From the usage by day, in UTC. Days that are over are read once, and now and then again in case
something was still being written when they ended. They are added up where they are read, in a
thread: with many teams that takes long, and the event loop has streams to serve.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, TypeVar

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
_DAY = timedelta(days=1)
_WEEK_DAYS = 7
# Of a team or a model that did nothing.
_NOTHING: Counter[str] = Counter()
_SUMS = ("requests", "input_tokens", "output_tokens", "cost_micros")

_Key = TypeVar("_Key")


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


class Spend(NamedTuple):
    """What was spent in some days, by team and by model."""

    teams: dict[int, Counter[str]]
    models: dict[str, Counter[str]]


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
        self._past: dict[str, Spend] = {}
        self._past_at: datetime | None = None
        self.parts: Parts = {}
        self.short: list[Short] = []

    async def look(self, now: datetime) -> None:
        """Read today, and the days before if that is due."""
        today = now.date()
        known = self._past_at
        if known is None or known.date() != today or now - known >= _PAST_EVERY:
            past = partial(read_spend, today - _FIRST_DAY, today - _DAY, today)
            self._past = await self._reader.read(past)
            self._past_at = now
        of_today = await self._reader.read(partial(read_spend, today, today, today))
        self.see(self._past, of_today, await self._reader.read(read_purses))

    def see(
        self, past: dict[str, Spend], of_today: dict[str, Spend], purses: dict[int, Purse]
    ) -> None:
        """Take what was spent by window, on days that are over and today, and what teams have."""
        windows = {name: _together(past[name], of_today[name]) for name in _WINDOWS}
        self.short = _short(windows, purses)
        self.parts = {
            f"usage/{name}": encode(_window(spend, purses)) for name, spend in windows.items()
        }


def read_spend(first: date, last: date, today: date) -> dict[str, Spend]:
    """Read what all teams spent on these days, by the windows that today has."""
    rows = UsageDay.objects.filter(day__range=(first, last)).order_by()
    found: Any = rows.values("day", "team_id", "model").annotate(
        **{f"sum_{name}": Sum(name) for name in _SUMS}
    )
    return add_up(
        (
            DaySums(
                row["day"],
                row["team_id"],
                row["model"],
                Counter({name: int(row[f"sum_{name}"]) for name in _SUMS}),
            )
            for row in found
        ),
        today,
    )


def read_purses() -> dict[int, Purse]:
    """Read every team."""
    balances = dict(Account.objects.values_list("team_id", "balance_micros"))
    teams = Team.objects.values_list("pk", "name", "prepaid")
    return {
        team_id: Purse(name, balances.get(team_id, 0) if prepaid else None)
        for team_id, name, prepaid in teams
    }


def add_up(days: Iterable[DaySums], today: date) -> dict[str, Spend]:
    """Return what was spent in each window, of these days."""
    windows = {name: Spend(defaultdict(Counter), defaultdict(Counter)) for name in _WINDOWS}
    for each in days:
        ago = (today - each.day).days
        for name, (last, first) in _WINDOWS.items():
            if last <= ago <= first:
                windows[name].teams[each.team_id].update(each.sums)
                windows[name].models[each.model].update(each.sums)
    return windows


def _together(one: Spend, other: Spend) -> Spend:
    return Spend(_merged(one.teams, other.teams), _merged(one.models, other.models))


def _merged(
    one: dict[_Key, Counter[str]], other: dict[_Key, Counter[str]]
) -> dict[_Key, Counter[str]]:
    return {key: one.get(key, _NOTHING) + other.get(key, _NOTHING) for key in one | other}


def _window(spend: Spend, purses: dict[int, Purse]) -> Window:
    total: Counter[str] = Counter()
    for sums in spend.models.values():
        total.update(sums)
    return Window(
        total=Use(name="", **total),
        teams=_listed(
            Use(name=purses[team_id].name, id=team_id, **sums)
            if team_id in purses
            else Use(name=f"team {team_id}, deleted", **sums)
            for team_id, sums in spend.teams.items()
        ),
        models=_listed(Use(name=model, **sums) for model, sums in spend.models.items()),
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


def _short(windows: dict[str, Spend], purses: dict[int, Purse]) -> list[Short]:
    """Find teams that still spend, and would use their balance up within a usual day."""

    def cost_micros(window: str, team_id: int) -> int:
        return windows[window].teams.get(team_id, _NOTHING)["cost_micros"]

    found = []
    for team_id, (name, balance) in purses.items():
        if balance is None or not cost_micros("month", team_id):
            continue
        usual = max(cost_micros("week", team_id) // _WEEK_DAYS, cost_micros("today", team_id))
        if balance <= 0 or balance < usual:
            found.append(Short(team_id, name, balance, usual))
    return sorted(found, key=lambda short: short.balance_micros)
