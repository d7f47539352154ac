"""Verifies the ledger: recounts it."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from gateway.management.team import team_id
from jobs.recount import Recount

_SHOWN = 100


class Command(BaseCommand):
    help = (
        "Recounts every entry of the ledger and compares balances and usage by day with what the "
        "entries make. Exit status 1 if anything is wrong."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--team", type=team_id, help="one team, by name or id (default: all)")

    def handle(self, *args: Any, team: int | None, **options: Any) -> None:
        recount = Recount(team)
        found = 0
        for found, finding in enumerate(recount.findings(), start=1):
            if found <= _SHOWN:
                self.stdout.write(self.style.ERROR(finding))
        if found > _SHOWN:
            self.stdout.write(f"... and {found - _SHOWN} more.")
        self.stdout.write(f"Recounted {recount.entries} entries.")
        if found:
            raise CommandError(f"The ledger is not what its entries make: {found} findings.")
