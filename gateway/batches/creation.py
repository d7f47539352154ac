"""Makes a batch: who may, once for each idempotency key, and with all of its rows or none."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from django.db import IntegrityError, transaction

from gateway.keys import Principal
from inference.errors import ErrorCode, TandemError
from jobs.batches import begin
from jobs.ledger import read_state
from jobs.models import Batch
from jobs.work.enqueue import NewWork

WINDOW = timedelta(hours=24)


class NewBatch(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a batch before its rows are. The fields are those of `jobs.models.Batch`."""

    id: UUID
    form: Batch.Form
    endpoint: str
    principal: Principal
    created_at: datetime
    client: str = ""
    address: str = ""
    idempotency_key: str = ""
    request_digest: bytes = b""


def create(new: NewBatch, rows: Iterable[NewWork]) -> Batch:
    """Make a batch whose rows may run at once; return it, or the one made by the same request.

    Raises BALANCE_EXHAUSTED, CONFLICT for an idempotency key that another request had, and what
    comes out of `rows`: there is no batch then.
    """

    def make() -> Batch:
        insert(new)
        return begin(new.id, rows)

    return make_once(new, make)


def make_once(new: NewBatch, make: Callable[[], Batch]) -> Batch:
    """Return the batch that the same request has made already, or make it in a transaction.

    Raises BALANCE_EXHAUSTED, CONFLICT for an idempotency key that another request had, and what
    `make` raises.
    """
    if known := find_repeated(new):
        return known
    _check_balance(new.principal)
    try:
        with transaction.atomic():
            return make()
    except IntegrityError:
        # The same request at the same time was first, and has committed.
        if known := find_repeated(new):
            return known
        raise


def _check_balance(principal: Principal) -> None:
    """Refuse a team that pays in advance and has nothing left: each row is held as it is run."""
    if principal.prepaid and read_state(principal.team_id).balance_micros <= 0:
        raise TandemError(ErrorCode.BALANCE_EXHAUSTED, "the team's balance is used up")


def find_repeated(new: NewBatch) -> Batch | None:
    """Return the batch that the same request has made already, by its idempotency key.

    Raises CONFLICT if the key was another request's.
    """
    if not new.idempotency_key:
        return None
    known = Batch.objects.filter(
        team_id=new.principal.team_id, idempotency_key=new.idempotency_key
    ).first()
    if known is not None and bytes(known.request_digest) != new.request_digest:
        raise TandemError(
            ErrorCode.CONFLICT,
            "this Idempotency-Key was used for another request; use a new one",
        )
    return known


def insert(new: NewBatch, **more: Any) -> Batch:
    """Store a batch without rows. `more` are fields of `Batch` that only some have."""
    principal = new.principal
    return Batch.objects.create(
        id=new.id,
        form=new.form,
        team_id=principal.team_id,
        team_name=principal.team_name,
        key_id=UUID(principal.key_id),
        key_name=principal.key_name,
        client=new.client,
        address=new.address,
        endpoint=new.endpoint,
        idempotency_key=new.idempotency_key,
        request_digest=new.request_digest,
        created_at=new.created_at,
        expires_at=new.created_at + WINDOW,
        **more,
    )
