"""Rows that the pages are about."""

from __future__ import annotations

import uuid
import zlib
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import uuid_utils
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.utils import timezone

from inference.events import Finished, FinishReason, Usage
from inference.fold import Answer, KeptPart
from inference.request import TextPart
from jobs import ledger
from jobs.models import Batch, LedgerEntry, Price, RequestBody, RequestRecord, Work
from jobs.packing import pack_answer

NOON = datetime(2026, 8, 7, 12, tzinfo=UTC)
KEY_ID = uuid.UUID(int=7)


def new_id() -> uuid.UUID:
    return uuid.UUID(str(uuid_utils.uuid7()))


def make_record(**fields: Any) -> RequestRecord:
    now = timezone.now()
    empty: dict[str, Any] = {
        "id": new_id(),
        "created_at": now,
        "team_id": 7,
        "team_name": "blue",
        "key_id": KEY_ID,
        "key_name": "laptop",
        "model": "tiny",
        "lane": "realtime",
        "dialect": "anthropic",
        "status": "completed",
        "ending": "finished",
        "detail": "end",
        "settled_at": now,
    }
    return RequestRecord.objects.create(**(empty | fields))


def keep(record: RequestRecord, body: bytes | None, *answer: KeptPart) -> None:
    """Keep what a request said and what was answered."""
    RequestBody.objects.create(
        record_id=record.pk,
        created_at=record.created_at,
        body=None if body is None else zlib.compress(body),
        answer=zlib.compress(msgspec.msgpack.encode(answer)) if answer else None,
    )


def set_price(**fields: Any) -> Price:
    rates = {
        "input_micros_per_mtok": 3_000_000,
        "cached_input_micros_per_mtok": 300_000,
        "cache_write_micros_per_mtok": 3_750_000,
        "output_micros_per_mtok": 15_000_000,
    }
    said: dict[str, Any] = {"model": "tiny", "effective_from": NOON} | rates
    return Price.objects.create(**(said | fields))


def bill(record: RequestRecord, price: Price | None = None) -> LedgerEntry:
    charge = ledger.Charge(
        request_id=str(record.pk),
        team_id=record.team_id,
        key_id=str(record.key_id),
        model=record.model,
        lane=record.lane,
        usage=Usage(prompt_tokens=10, cached_tokens=0, output_tokens=5),
        cost_micros=1_234_567,
        price_id=price.pk if price else None,
    )
    ledger.charge([charge], timezone.now())
    return LedgerEntry.objects.get(request_id=record.pk)


def make_batch(**fields: Any) -> Batch:
    empty: dict[str, Any] = {
        "id": new_id(),
        "form": "openai",
        "team_id": 7,
        "team_name": "blue",
        "key_id": KEY_ID,
        "endpoint": "/v1/chat/completions",
        "model": "tiny",
        "status": "in_progress",
        "expires_at": timezone.now() + timedelta(days=1),
    }
    return Batch.objects.create(**(empty | fields))


def make_row(batch: Batch, line: int, **fields: Any) -> Work:
    """Make a row of a batch; one with an outcome has ended, one that is completed has an answer."""
    ended: dict[str, Any] = {}
    if outcome := fields.get("outcome"):
        ended = {"state": "done", "ended_at": timezone.now()}
        if outcome == "completed":
            end = Finished(
                reason=FinishReason.END,
                usage=Usage(prompt_tokens=1, cached_tokens=0, output_tokens=1),
            )
            ended["answer"] = pack_answer(Answer(parts=(TextPart(f"a{line}"),), finished=end))
    empty: dict[str, Any] = {
        "id": new_id(),
        "batch": batch,
        "line": line,
        "custom_id": f"row-{line}",
        "team_id": batch.team_id,
        "key_id": KEY_ID,
        "dialect": "chat",
        "model": "tiny",
        "lane": "batch",
        "rank": 3,
        "deadline_at": batch.expires_at,
    }
    return Work.objects.create(**(empty | ended | fields))


def operator(*permissions: str) -> Client:
    """Return a browser of somebody who is logged in and may do so much."""
    user = User.objects.create_user(f"operator-{new_id()}", is_staff=True)
    user.user_permissions.add(*Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client
