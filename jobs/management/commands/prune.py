"""Removes what is over the age that the settings say."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand
from django.utils import timezone
from tqdm import tqdm

from jobs.retention import Cutoffs, over_age, prune_bodies, prune_seals


class Command(BaseCommand):
    help = (
        "Removes bodies older than BODY_RETENTION_DAYS and rows of the audit trail older than "
        "AUDIT_RETENTION_DAYS, as the clerk does every hour. Never the ledger."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="only say how much there is")

    def handle(self, *args: Any, dry_run: bool, **options: Any) -> None:
        cutoffs = Cutoffs.at(timezone.now())
        bodies, rows = over_age(cutoffs)
        if dry_run:
            self._say("Would prune", bodies, rows, cutoffs)
            return
        with tqdm(total=bodies + rows, unit="row", file=sys.stderr, disable=None) as bar:
            bodies = rows = 0
            for count in prune_bodies(cutoffs.bodies):
                bodies += count
                bar.update(count)
            for count in prune_seals(cutoffs.seals):
                rows += count
                bar.update(count)
        self._say("Pruned", bodies, rows, cutoffs)

    def _say(self, what: str, bodies: int, rows: int, cutoffs: Cutoffs) -> None:
        self.stdout.write(
            f"{what} {bodies} bodies from before {cutoffs.bodies:%Y-%m-%d %H:%M} UTC"
            f" and {rows} rows sealed before {cutoffs.seals:%Y-%m-%d %H:%M} UTC."
        )
