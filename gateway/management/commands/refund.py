"""Gives back what a request cost."""

from __future__ import annotations

from argparse import ArgumentParser
from decimal import Decimal
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from gateway.amounts import MICROS, amount_micros
from gateway.credit import refund
from gateway.request_ids import parse_request_id
from inference.errors import TandemError


class Command(BaseCommand):
    help = "Gives back what a request cost, or a part of it, once, and prints the new balance."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("request", help="the request's id, such as msg_… or req_…")
        parser.add_argument(
            "amount",
            nargs="?",
            type=amount_micros,
            help="of the currency, such as 0.25; without it, all that the request cost",
        )
        parser.add_argument("--description", default="", help="what the team sees beside it")

    def handle(
        self, *args: Any, request: str, amount: int | None, description: str, **options: Any
    ) -> None:
        request_id = parse_request_id(request)
        if request_id is None:
            raise CommandError(f"{request!r} is not the id of a request.")
        try:
            entry = refund(
                str(request_id), amount, actor="manage.py refund", description=description
            )
        except TandemError as error:
            raise CommandError(error.message) from None
        given, balance = (
            Decimal(micros) / MICROS for micros in (entry.amount_micros, entry.balance_after_micros)
        )
        self.stdout.write(f"Gave back {given:f}; the balance is {balance:f}.")
