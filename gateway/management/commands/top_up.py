"""Tops up a team's balance."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from decimal import Decimal
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from gateway.credit import top_up
from gateway.models import Team
from inference.errors import TandemError

_MICROS = 1_000_000


class Command(BaseCommand):
    help = "Adds credit that a team has paid for to its balance, and prints the new balance."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("team", help="the team's name")
        parser.add_argument("amount", type=_micros, help="of the currency, such as 25.00")
        parser.add_argument(
            "--nonce",
            default="",
            help="a name for this top-up, such as the payment's: given again, it is not made again",
        )
        parser.add_argument("--description", default="", help="what the team sees beside it")

    def handle(
        self, *args: Any, team: str, amount: int, nonce: str, description: str, **options: Any
    ) -> None:
        found = Team.objects.filter(name=team).first()
        if found is None:
            raise CommandError(f"There is no team {team!r}.")
        try:
            entry = top_up(
                found.pk, amount, nonce=nonce, actor="manage.py top_up", description=description
            )
        except TandemError as error:
            raise CommandError(error.message) from None
        balance = Decimal(entry.balance_after_micros) / _MICROS
        self.stdout.write(f"Entry {entry.number} of team {team!r}; the balance is {balance:f}.")


def _micros(text: str) -> int:
    """Return whole micro-units; the ledger says whether it takes so many."""
    try:
        micros = Decimal(text) * _MICROS
    except ArithmeticError:
        raise ArgumentTypeError(f"{text!r} is not an amount such as 25.00") from None
    if not micros.is_finite() or micros != micros.to_integral_value():
        raise ArgumentTypeError("an amount has at most six decimal places")
    return int(micros)
