"""Makes an API key."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from gateway.keys import mint
from inference.errors import TandemError


class Command(BaseCommand):
    help = "Makes an API key and prints it, alone, on standard output. It is not shown again."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="what people will know the key by")
        parser.add_argument(
            "--team", default="default", help="owner of the key, made if new (%(default)s)"
        )

    def handle(self, *args: Any, name: str, team: str, **options: Any) -> None:
        try:
            plaintext = mint(name, team)
        except TandemError as error:
            raise CommandError(error.message) from None
        self.stderr.write(f"Key {name!r} of team {team!r}. Keep it: only its hash is stored.")
        self.stdout.write(plaintext)
