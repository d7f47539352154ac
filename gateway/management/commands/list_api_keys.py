"""Lists the API keys."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.core.management.base import BaseCommand

from gateway.keys import list_keys
from gateway.models import ApiKey
from jobs.reports import last_used

_HEADER = ("PREFIX", "NAME", "TEAM", "OWNER", "SCOPES", "MODELS")
_MOMENTS = ("CREATED", "LAST USED", "EXPIRES", "REVOKED")


class Command(BaseCommand):
    help = "Lists all API keys, newest first, with what they may do and when they were last used."

    def handle(self, *args: Any, **options: Any) -> None:
        keys = list(list_keys())
        used = last_used(key.id for key in keys)
        rows = [(*_HEADER, *_MOMENTS), *(_row(key, used.get(key.id)) for key in keys)]
        widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            self.stdout.write("  ".join(cells).rstrip())


def _row(key: ApiKey, last_used_at: datetime | None) -> tuple[str, ...]:
    return (
        key.prefix,
        key.name,
        key.team.name,
        key.owner or "-",
        ",".join(key.scopes),
        ",".join(key.allowed_models) or "all",
        *map(_shown, (key.created_at, last_used_at, key.expires_at, key.revoked_at)),
    )


def _shown(moment: datetime | None) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC" if moment else "-"
