"""Seals: a chain of signed digests over the settled rows of the audit trail.

What a row's digest is computed over, and what a seal's signature is computed over, is described in
`docs/audit.md`, so that an auditor can recompute both without this code.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from django.conf import settings
from django.db import connection, models, transaction
from django.utils import timezone
from django.utils.crypto import salted_hmac

from jobs.models import AuditSeal, RequestRecord

logger = logging.getLogger(__name__)

MAX_ROWS = 1_000
# Long enough that the process that settled a row has committed it whatever its clock says, and
# that a quiet install makes few and full seals.
SEAL_AFTER = timedelta(seconds=60)

# Fields are added at the end, and neither renamed nor moved: old rows must give their old bytes.
SEALED_FIELDS = (
    *("id", "created_at", "deadline_at"),
    *("team_id", "team_name", "key_id", "key_name"),
    *("client", "address", "trace_id", "session_id"),
    *("type", "dialect", "lane", "model", "streamed", "max_tokens"),
    *("ignored_fields", "body_bytes", "body_digest"),
    *("engine_id", "engine_host", "attempts"),
    *("taken_at", "first_token_at", "engine_ended_at", "closed_at"),
    *("status", "ending", "detail", "error", "answer_digest"),
    *("input_tokens", "cached_tokens", "cache_written_tokens"),
    *("output_tokens", "thinking_tokens", "cost_micros", "settled_at"),
    *("batch_id", "stream_id", "custom_id"),
    "requested_model",
)
_FIELDS = [RequestRecord._meta.get_field(name) for name in SEALED_FIELDS]
_LAYOUT = [(field.name, field.null) for field in _FIELDS]


class _Microseconds(models.Func):
    """Whole microseconds of Unix time: exact, and cheaper than a `datetime`."""

    template = "(EXTRACT(EPOCH FROM %(expressions)s) * 1000000)::bigint"
    output_field = models.BigIntegerField()


SEALED_VALUES = [
    _Microseconds(field.name) if isinstance(field, models.DateTimeField) else field.name
    for field in _FIELDS
]
"""What to select: the values of `SEALED_FIELDS` as they are sealed."""

# The key of the advisory lock under which the chain is changed, and (shared) read.
_CHAIN_LOCK = int.from_bytes(b"tandseal")
_FIRST = bytes(32)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ENCODER = msgspec.json.Encoder()


def seal_settled(patience_s: float) -> int:
    """Seal what is settled, until nothing is left or `patience_s` are over; return how many rows.

    Harmless at any time, and in several processes at once.
    """
    end_s = time.monotonic() + patience_s
    sealed = rows = seal_batch(timezone.now())
    # A batch that is not full was the last; under load another would find a handful.
    while rows == MAX_ROWS and time.monotonic() < end_s:
        rows = seal_batch(timezone.now())
        sealed += rows
    if sealed:
        logger.info("Sealed %d rows of the audit trail", sealed)
    return sealed


def seal_batch(now: datetime) -> int:
    """Put at most `MAX_ROWS` rows, those settled first, under one new seal; return how many."""
    with transaction.atomic():
        lock_chain()
        # A row that somebody holds is left to the next batch: never to wait for rows while
        # holding some keeps this clear of every deadlock.
        settled = RequestRecord.objects.filter(seal__isnull=True, settled_at__lt=now - SEAL_AFTER)
        settled = settled.order_by("settled_at", "id").select_for_update(skip_locked=True)
        rows = sorted(settled.values_list(*SEALED_VALUES)[:MAX_ROWS], key=lambda row: row[0].bytes)
        if not rows:
            return 0
        seal = _new_seal(now, b"".join(leaf(row) for row in rows))
        seal.save(force_insert=True)
        RequestRecord.objects.filter(id__in=[row[0] for row in rows]).update(seal=seal)
    return len(rows)


def _new_seal(now: datetime, leaves: bytes) -> AuditSeal:
    last = AuditSeal.objects.order_by("-number").only("number", "digest").first()
    seal = AuditSeal(
        number=last.number + 1 if last else 1,
        created_at=now,
        rows=len(leaves) // LEAF_BYTES,
        leaves=leaves,
        rows_digest=hashlib.sha256(leaves).digest(),
    )
    seal.digest = chain_digest(seal, bytes(last.digest) if last else _FIRST, settings.SECRET_KEY)
    return seal


def lock_chain(*, shared: bool = False) -> None:
    """Keep every other change away from the chain until this transaction ends."""
    lock = "pg_advisory_xact_lock_shared" if shared else "pg_advisory_xact_lock"
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {lock}(%s)", [_CHAIN_LOCK])


LEAF_BYTES = 16 + 32


def leaf(row: Sequence[Any]) -> bytes:
    """Return the id and the digest of a row, given as `SEALED_VALUES`."""
    identity: bytes = row[0].bytes
    return identity + hashlib.sha256(canonical(row)).digest()


def canonical(row: Sequence[Any]) -> bytes:
    """Return what a row says, as JSON that has one form only.

    Left out are null, and in fields that are never null the blank value of their type ("", 0,
    false, []): a field that is added later changes nothing for the rows that were there before.
    """
    said = {
        name: value
        for (name, nullable), value in zip(_LAYOUT, row, strict=True)
        if (value is not None if nullable else value)
    }
    return _ENCODER.encode(said)


def chain_digest(seal: AuditSeal, previous: bytes, secret: str | bytes) -> bytes:
    """Return a seal's signature; `previous` is that of the seal before."""
    message = (
        previous
        + seal.number.to_bytes(8)
        + seal.rows.to_bytes(4)
        + bytes(seal.rows_digest)
        + _microseconds(seal.created_at).to_bytes(8)
    )
    return salted_hmac("tandem.audit.seal", message, secret, algorithm="sha256").digest()


def pruning_digest(seal: AuditSeal, pruned_at: datetime, secret: str | bytes) -> bytes:
    """Return the signature of retention under its removal of a seal's rows."""
    message = bytes(seal.digest) + _microseconds(pruned_at).to_bytes(8)
    return salted_hmac("tandem.audit.pruning", message, secret, algorithm="sha256").digest()


def _microseconds(moment: datetime) -> int:
    """Return whole microseconds of Unix time; exact, as PostgreSQL keeps them."""
    return (moment - _EPOCH) // timedelta(microseconds=1)
