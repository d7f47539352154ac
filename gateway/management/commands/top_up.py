"""Tops up a team's balance."""

from __future__ import annotations

from argparse import ArgumentParser
from decimal import Decimal
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from gateway.amounts import MICROS, amount_micros
from gateway.credit import top_up
from gateway.management.team import team_id
from inference.errors import TandemError


class Command(BaseCommand):
    help = "Adds credit that a team has paid for to its balance, and prints the new balance."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("team", type=team_id, help="the team's name or id")
        parser.add_argument("amount", type=amount_micros, help="of the currency, such as 25.00")
        parser.add_argument(
            "--nonce",
            default="",
            help="a name for this top-up, such as the payment's: given again, it is not made again",
        )
        parser.add_argument("--description", default="", help="what the team sees beside it")

    def handle(
        self, *args: Any, team: int, amount: int, nonce: str, description: str, **options: Any
    ) -> None:
        try:
            entry = top_up(
                team, amount, nonce=nonce, actor="manage.py top_up", description=description
            )
        except TandemError as error:
            raise CommandError(error.message) from None
        balance = Decimal(entry.balance_after_micros) / MICROS
        self.stdout.write(f"Entry {entry.number} of team {team}; the balance is {balance:f}.")
