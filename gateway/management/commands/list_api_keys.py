"""Lists the API keys."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.core.management.base import BaseCommand

from gateway.keys import list_keys


class Command(BaseCommand):
    help = "Lists all API keys, newest first: prefix, name, team, when made and when revoked."

    def handle(self, *args: Any, **options: Any) -> None:
        rows = [("PREFIX", "NAME", "TEAM", "CREATED", "REVOKED")]
        rows += [
            (key.prefix, key.name, key.team.name, _shown(key.created_at), _shown(key.revoked_at))
            for key in list_keys()
        ]
        widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            self.stdout.write("  ".join(cells).rstrip())


def _shown(moment: datetime | None) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC" if moment else "-"
