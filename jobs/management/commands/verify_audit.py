"""Verifies the audit trail against its seals."""

from __future__ import annotations

import re
import sys
from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from tqdm import tqdm

from jobs.models import AuditSeal, RequestRecord
from jobs.verification import Finding, Verification

_SHOWN = 100


class Command(BaseCommand):
    help = (
        "Recomputes every seal of the audit trail and every row under it, and names what was "
        "changed, deleted or added since. Prints the chain's head; note it elsewhere, and give "
        "it as --head the next time. Exit status 1 if anything is wrong."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--since", type=_number, default=1, metavar="N", help="begin with seal N (%(default)s)"
        )
        parser.add_argument(
            "--head", type=_digest, metavar="HEX", help="a head noted before: it must be there"
        )

    def handle(self, *args: Any, since: int, head: bytes | None, **options: Any) -> None:
        verification = Verification(since)
        rows = bodies = found = 0
        total = AuditSeal.objects.filter(number__gte=since).count()
        with tqdm(total=total, unit="seal", file=sys.stderr, disable=None) as bar:
            for checked in verification.run(head):
                bar.update(checked.seals)
                rows, bodies = rows + checked.rows, bodies + checked.bodies
                self._show(checked.findings, found)
                found += len(checked.findings)
        self.stdout.write(f"Checked {total} seals, {rows} rows, {bodies} bodies.")
        waiting = RequestRecord.objects.filter(seal__isnull=True).count()
        self.stdout.write(f"Not sealed yet: {waiting} rows.")
        if verification.head:
            number, digest = verification.head.number, bytes(verification.head.digest).hex()
            self.stdout.write(f"Head: seal {number}, {digest}")
        if found:
            raise CommandError(f"The audit trail is not as it was sealed: {found} findings.")

    def _show(self, findings: list[Finding], before: int) -> None:
        for finding in findings[: max(0, _SHOWN - before)]:
            self.stdout.write(self.style.ERROR(str(finding)))
        if before < _SHOWN <= before + len(findings):
            self.stdout.write("Further findings are counted, not shown.")


def _number(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError("must be a seal's number, from 1")
    return int(text)


def _digest(text: str) -> bytes:
    if not re.fullmatch(r"[0-9a-fA-F]{64}", text):
        raise ArgumentTypeError("must be 64 hexadecimal digits")
    return bytes.fromhex(text)
