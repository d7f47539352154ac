"""Exports usage as CSV."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import date
from io import TextIOBase
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from tqdm import tqdm

from gateway.management.team import team_id
from jobs.usage_csv import usage_entries, write_csv


class Command(BaseCommand):
    help = (
        "Writes a CSV file with a line for each request that was billed: tokens, cost, key, "
        "outcome. docs/audit.md describes the columns."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--from", dest="first", type=_day, required=True, metavar="DATE")
        parser.add_argument("--to", dest="last", type=_day, required=True, metavar="DATE")
        parser.add_argument("--team", type=team_id, help="one team, by name or id (default: all)")
        parser.add_argument("--out", type=Path, metavar="FILE", help="default: standard output")

    def handle(
        self, *args: Any, first: date, last: date, team: int | None, out: Path | None, **_: Any
    ) -> None:
        if last < first:
            raise CommandError("--to is before --from")
        entries = usage_entries(first, last, team)
        lines = 0
        with (
            tqdm(unit="line", file=sys.stderr, disable=None) as bar,
            _whole(out) if out else nullcontext(self.stdout) as file,
        ):
            for count in write_csv(entries, file):
                lines += count
                bar.update(count)
        self.stderr.write(f"Exported {lines} requests.", lambda text: text)


@contextmanager
def _whole(path: Path) -> Iterator[TextIOBase]:
    """Open a file that gets its name once all of it is written."""
    draft = path.with_name(f"{path.name}.part")
    try:
        with draft.open("w", encoding="utf-8", newline="") as file:
            yield file
        draft.replace(path)
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}") from None
    finally:
        draft.unlink(missing_ok=True)


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError("must be a day, as 2026-08-31") from None
