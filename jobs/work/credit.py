"""Whether a team can pay for the work that an engine is about to run, and what it hears if not."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

import redis
from django.conf import settings
from django.utils import timezone
from django.utils.module_loading import import_string
from redis.exceptions import ResponseError

from inference.errors import ErrorCode
from inference.transport.connection import Unreachable
from jobs import ledger
from jobs.quota.claims import Capped, Decision, Ended, Exhausted, Granted, Unknown
from jobs.quota.client import Settler
from jobs.quota.holds import Holds, Terms, Wanted
from jobs.recorder.settling import Settlement
from jobs.work.rows import Row

logger = logging.getLogger(__name__)

TermsOf = Callable[[Iterable[int]], Mapping[int, Terms]]
# What cannot be told to Redis is told again with what comes next, and dropped beyond that.
_UNTOLD_AT_MOST = 1_000


class Refused(NamedTuple):
    """Why a row is not run: never, for the lack of money, or `wait`, for that of others' ends."""

    code: ErrorCode
    message: str
    wait: bool


class Credit:
    """One engine's end of the quota. It raises what the Redis client raises, but for `settle`."""

    def __init__(self, client: redis.Redis, prefix: str) -> None:
        self._holds = Holds(client, prefix)
        self._settler = Settler(client, prefix)
        self._untold: list[Settlement] = []

    def hold(self, rows: Sequence[Row]) -> dict[UUID, Refused]:
        """Hold what the rows may cost; return why those are refused that are, by their ids."""
        by_team: dict[int, list[Row]] = defaultdict(list)
        for row in rows:
            by_team[row.team_id].append(row)
        terms = _terms_of()(by_team)
        refused: dict[UUID, Refused] = {}
        for team_id, theirs in by_team.items():
            if team_id not in terms:
                gone = Refused(ErrorCode.PERMISSION, "the team does not exist any more", wait=False)
                refused |= {row.id: gone for row in theirs}
            else:
                refused |= self._hold_of_team(team_id, terms[team_id], theirs)
        return refused

    def covers(self, team_id: int, wanted: Wanted) -> bool:
        """Hold what a request that runs may come to cost; False if its team cannot pay that."""
        terms = _terms_of()([team_id])
        if team_id not in terms:
            return False
        (decision,) = self._decided(team_id, terms[team_id], [wanted])
        return isinstance(decision, Granted)

    def _hold_of_team(self, team_id: int, terms: Terms, rows: Sequence[Row]) -> dict[UUID, Refused]:
        wanted = [
            Wanted(request_id=str(row.id), key_id=str(row.key_id), hold_micros=row.hold_micros)
            for row in rows
        ]
        decisions = self._decided(team_id, terms, wanted)
        return {
            row.id: refused
            for row, decision in zip(rows, decisions, strict=True)
            if (refused := why_refused(decision, row.hold_micros))
        }

    def _decided(self, team_id: int, terms: Terms, wanted: Sequence[Wanted]) -> list[Decision]:
        decisions = self._holds.hold(team_id, terms, wanted)
        if any(isinstance(each, Unknown | Exhausted | Capped) for each in decisions):
            # Redis may know nothing of the team, or not of its last top-up.
            self._settler.settle(team_id, ledger.read_state(team_id))
            decisions = self._holds.hold(team_id, terms, wanted)
        return decisions

    def settle(self, settlements: Iterable[Settlement]) -> None:
        """Tell of what is settled and committed, and of what could not be told before."""
        self._untold += settlements
        untold, self._untold = self._untold, []
        while untold:
            each = untold[-1]
            try:
                self._settler.settle(each.team_id, each.state, each.requests)
            except Unreachable as error:
                logger.warning("the quota cannot be told of work that ended: %s", error)
                self._untold = untold[-_UNTOLD_AT_MOST:]
                return
            except ResponseError:
                logger.exception("The quota of team %d cannot be settled", each.team_id)
            untold.pop()


def why_refused(decision: Decision, hold_micros: int) -> Refused | None:
    """Return why a row is refused, if it is.

    Where the money would do but for what is held for others, it waits for those to end.
    """
    match decision:
        case Exhausted(balance_micros=balance):
            return Refused(
                ErrorCode.BALANCE_EXHAUSTED,
                "the team's balance is used up"
                if balance <= 0
                else "the team's balance does not cover this request",
                wait=balance >= hold_micros,
            )
        case Capped(period=period, cap_micros=cap, spent_micros=spent):
            return Refused(
                ErrorCode.SPEND_CAP,
                f"spend limit reached ({period})",
                wait=spent + hold_micros <= cap,
            )
        case Unknown():
            return Refused(ErrorCode.UNAVAILABLE, "the team's balance is not known", wait=True)
    return None


def released(rows: Iterable[Row]) -> list[Settlement]:
    """Return what to tell of rows that an engine had and that wait again."""
    by_team: dict[int, list[Ended]] = defaultdict(list)
    for row in rows:
        if row.hold_micros > 0:
            by_team[row.team_id].append(Ended(request_id=str(row.id), settled=True))
    if not by_team:
        return []
    states = ledger.read_states(list(by_team), timezone.now())
    return [
        Settlement(team_id=team_id, state=states[team_id], requests=requests)
        for team_id, requests in by_team.items()
    ]


def _terms_of() -> TermsOf:
    # The gateway knows teams, and this package does not know the gateway.
    terms_of: TermsOf = import_string(settings.WORK_TERMS)
    return terms_of
