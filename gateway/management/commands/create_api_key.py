"""Makes an API key."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from gateway.keys import mint
from gateway.models import Scope, default_scopes
from inference.errors import TandemError


class Command(BaseCommand):
    help = "Makes an API key and prints it, alone, on standard output. It is not shown again."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="what people will know the key by")
        parser.add_argument(
            "--team", default="default", help="whose it is, made if new (%(default)s)"
        )
        parser.add_argument("--owner", default="", help="who answers for its use")
        parser.add_argument(
            "--scope",
            dest="scopes",
            action="append",
            choices=Scope.values,
            help=f"what it may do; may be repeated ({', '.join(default_scopes())})",
        )
        parser.add_argument(
            "--model",
            dest="allowed_models",
            action="append",
            default=[],
            help="a catalogue id that it may call; may be repeated (every model)",
        )
        parser.add_argument(
            "--expires",
            dest="expires_at",
            type=_moment,
            help="when it ends, as 2027-01-31 or 2027-01-31T18:00, in UTC (never)",
        )

    def handle(
        self,
        *args: Any,
        name: str,
        team: str,
        owner: str,
        scopes: list[str] | None,
        **options: Any,
    ) -> None:
        try:
            plaintext = mint(
                name,
                team,
                owner=owner,
                scopes=scopes,
                allowed_models=options["allowed_models"],
                expires_at=options["expires_at"],
            )
        except TandemError as error:
            raise CommandError(error.message) from None
        self.stderr.write(f"Key {name!r} of team {team!r}. Keep it: only its hash is stored.")
        self.stdout.write(plaintext)


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a date or time such as 2027-01-31") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
