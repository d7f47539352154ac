"""Verification: is every row of the audit trail, and every seal over them, as it was sealed?"""

from __future__ import annotations

import hashlib
import hmac
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction

from jobs.models import AuditSeal, RequestBody, RequestRecord
from jobs.seals import (
    LEAF_BYTES,
    MAX_ROWS,
    SEALED_FIELDS,
    SEALED_VALUES,
    chain_digest,
    leaf,
    lock_chain,
    pruning_digest,
)

_SEALS_AT_ONCE = 20
_BODIES_AT_ONCE = 16
_PIECE_BYTES = 64 * 1024
_BODY_DIGEST = SEALED_FIELDS.index("body_digest")
_ANSWER_DIGEST = SEALED_FIELDS.index("answer_digest")


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it was sealed. `row_id` None: the seal itself."""

    number: int
    row_id: UUID | None
    what: str

    def __str__(self) -> str:
        row = f", request {self.row_id}" if self.row_id else ""
        return f"seal {self.number}{row}: {self.what}"


@dataclass(slots=True)
class Checked:
    """What was looked at in one step, and what was found."""

    seals: int = 0
    rows: int = 0
    bodies: int = 0
    findings: list[Finding] = field(default_factory=list)


class Verification:
    """One walk along the chain, from a seal to the newest.

    The seal before the first is trusted as it is stored. Memory is bounded: the walk goes in
    steps, and between two of them seals may be made and pruned.
    """

    def __init__(self, since: int = 1) -> None:
        self.head: AuditSeal | None = None
        self._next = since
        self._previous = bytes(32)
        self._since = since
        # Newest first. A seal may be older than a change of the key, but none after it may.
        self._secrets = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
        self._noted: bytes | None = None

    def run(self, noted_head: bytes | None = None) -> Iterator[Checked]:
        """Check everything, a step at a time.

        `noted_head` is the digest of a seal that an auditor wrote down: the chain must have it.
        """
        self._noted = noted_head
        yield self._start()
        while (checked := self._step()) is not None:
            yield checked
        if self._noted is not None:
            what = "the noted head is not in the chain after it: its end was cut off or rewritten"
            yield Checked(findings=[Finding(self._next - 1, None, what)])

    def _start(self) -> Checked:
        if self._since == 1:
            strange = AuditSeal.objects.filter(number__lt=1).values_list("number", flat=True)[:10]
            return Checked(findings=[Finding(each, None, "was added") for each in strange])
        before = AuditSeal.objects.filter(number=self._since - 1).only("digest").first()
        if before is None:
            return Checked(findings=[Finding(self._since - 1, None, "is missing")])
        self._previous = bytes(before.digest)
        return Checked()

    def _step(self) -> Checked | None:
        with transaction.atomic():
            lock_chain(shared=True)
            seals = list(
                AuditSeal.objects.filter(number__gte=self._next).order_by("number")[:_SEALS_AT_ONCE]
            )
            if not seals:
                return None
            checked = Checked(seals=len(seals))
            sound = [seal for seal in seals if self._check_seal(seal, checked.findings)]
            _check_rows(seals, sound, checked)
        checked.findings.sort(key=lambda finding: finding.number)
        return checked

    def _check_seal(self, seal: AuditSeal, findings: list[Finding]) -> bool:
        """Check a seal by itself; return whether its rows can be told by it."""
        digest = bytes(seal.digest)
        if seal.number > self._next:
            last = seal.number - 1
            missing = "is missing" if last == self._next else f"is missing, and all to {last}"
            findings.append(Finding(self._next, None, missing))
        elif not self._is_signed(seal):
            findings.append(Finding(seal.number, None, "was changed: its signature does not fit"))
        self.head, self._next, self._previous = seal, seal.number + 1, digest
        if self._noted == digest:
            self._noted = None
        if seal.pruned_at is not None:
            if not self._is_pruned(seal):
                findings.append(Finding(seal.number, None, "was not pruned by retention"))
            return True
        leaves = bytes(seal.leaves)
        if len(leaves) != seal.rows * LEAF_BYTES or not hmac.compare_digest(
            hashlib.sha256(leaves).digest(), bytes(seal.rows_digest)
        ):
            findings.append(Finding(seal.number, None, "was changed: its list of rows"))
            return False
        return True

    def _is_signed(self, seal: AuditSeal) -> bool:
        for place in reversed(range(len(self._secrets))):
            made = chain_digest(seal, self._previous, self._secrets[place])
            if hmac.compare_digest(made, bytes(seal.digest)):
                del self._secrets[place + 1 :]
                return True
        return False

    def _is_pruned(self, seal: AuditSeal) -> bool:
        assert seal.pruned_at is not None
        secrets = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
        return not seal.leaves and any(
            hmac.compare_digest(
                pruning_digest(seal, seal.pruned_at, secret), bytes(seal.pruning_digest)
            )
            for secret in secrets
        )


def _check_rows(seals: list[AuditSeal], sound: list[AuditSeal], checked: Checked) -> None:
    """Compare the rows that say that they are under these seals with what the seals say."""
    expected = {row_id: (seal.number, digest) for seal in sound for row_id, digest in _leaves(seal)}
    numbers = {seal.number for seal in sound}
    rows = (
        RequestRecord.objects.filter(seal__gte=seals[0].number, seal__lte=seals[-1].number)
        .order_by("seal_id", "id")
        .values_list(*SEALED_VALUES, "seal_id")
        .iterator(MAX_ROWS)
    )
    while batch := list(islice(rows, MAX_ROWS)):
        checked.rows += len(batch)
        for *row, number in batch:
            if number in numbers and (what := _compare(row, number, expected)):
                checked.findings.append(Finding(number, row[0], what))
        _check_bodies(batch, checked)
    for row_id, (number, _) in expected.items():
        checked.findings.append(
            Finding(number, UUID(bytes=row_id), "is missing: deleted, or taken from its seal")
        )


def _leaves(seal: AuditSeal) -> Iterator[tuple[bytes, bytes]]:
    leaves = bytes(seal.leaves)
    for start in range(0, len(leaves), LEAF_BYTES):
        yield leaves[start : start + 16], leaves[start + 16 : start + LEAF_BYTES]


def _compare(
    row: Sequence[Any], number: int, expected: dict[bytes, tuple[int, bytes]]
) -> str | None:
    """Say what is wrong with a row; take it out of what is still expected."""
    row_id: bytes = row[0].bytes
    known, digest = expected.get(row_id, (None, b""))
    if known != number:
        return "was added after it was sealed"
    del expected[row_id]
    return None if leaf(row)[16:] == digest else "was changed"


def _check_bodies(rows: list[tuple[Any, ...]], checked: Checked) -> None:
    """Compare what is kept of requests and answers with the digests in their rows."""
    said = {row[0]: row for row in rows}
    bodies = RequestBody.objects.filter(record_id__in=said).order_by("record_id")
    for kept in bodies.iterator(_BODIES_AT_ONCE):
        checked.bodies += 1
        row = said[kept.record_id]
        for what, data, digest in (
            ("body", kept.body, row[_BODY_DIGEST]),
            ("answer", kept.answer, row[_ANSWER_DIGEST]),
        ):
            if data is not None and _unpacked_digest(bytes(data)) != bytes(digest):
                text = f"its {what} is not the one that was recorded"
                checked.findings.append(Finding(row[-1], row[0], text))


def _unpacked_digest(data: bytes) -> bytes | None:
    """Return the SHA-256 of what a zlib stream holds; None if it is not a whole one."""
    digest, stream = hashlib.sha256(), zlib.decompressobj()
    try:
        while piece := stream.decompress(data, _PIECE_BYTES):
            digest.update(piece)
            data = stream.unconsumed_tail
    except zlib.error:
        return None
    # Nothing may be hidden behind the end of the stream.
    return digest.digest() if stream.eof and not stream.unused_data else None
