"""How commands are told of a team."""

from __future__ import annotations

from argparse import ArgumentTypeError

from gateway.models import Team
from gateway.team_ids import parse_team_id
from jobs.models import Account


def team_id(text: str) -> int:
    """Return the id of the team of this name or, if there is none, of this id.

    A team that was deleted still has its account. Raises `ArgumentTypeError` if there is neither.
    """
    named = Team.objects.filter(name=text).values_list("pk", flat=True).first()
    if named is not None:
        return named
    number = parse_team_id(text)
    if number is not None and any(
        model.objects.filter(pk=number).exists() for model in (Team, Account)
    ):
        return number
    raise ArgumentTypeError(f"there is no team {text!r}")
