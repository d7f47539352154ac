"""Revokes an API key."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from gateway.keys import find_key, list_keys, revoke
from inference.errors import TandemError


class Command(BaseCommand):
    help = "Revokes an API key: requests with it are refused from now on."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("key", help="the key's prefix, id or name")

    def handle(self, *args: Any, key: str, **options: Any) -> None:
        try:
            found = find_key(key)
        except TandemError as error:
            raise CommandError(error.message) from None
        if not revoke(list_keys().filter(pk=found.pk)):
            raise CommandError(f"{found} is revoked already")
        self.stderr.write(f"Revoked {found} of team {found.team}.")
