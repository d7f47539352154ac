"""Work for tests: rows as they are asked for, and what engines make of them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.utils import timezone

from inference.engine.work import WorkItem, WorkResult
from inference.events import Event, Finished, FinishReason, Usage
from inference.fold import Answer
from inference.request import (
    GenerationRequest,
    Lane,
    Message,
    Owner,
    Role,
    Sampling,
    TextPart,
)
from inference.transport.records import Ending
from jobs.models import Batch
from jobs.packing import pack_request
from jobs.quota.holds import Terms
from jobs.work.enqueue import NewWork
from jobs.work.source import DatabaseSource

KEY = str(uuid.UUID(int=7))
MODEL = "m"
USAGE = Usage(prompt_tokens=100, cached_tokens=20, output_tokens=30, thinking_tokens=5)
WINDOW = timedelta(hours=24)


def new_work(**fields: Any) -> NewWork:
    """Return a piece of work of the batch lane, unless the fields say otherwise."""
    request_id = str(fields.pop("id", uuid.uuid4()))
    now = timezone.now()
    said: dict[str, Any] = {
        "team_id": 1,
        "key_id": KEY,
        "dialect": "chat",
        "model": MODEL,
        "lane": Lane.BATCH,
        "created_at": now,
        "deadline_at": now + WINDOW,
        "max_tokens": 100,
        "body_bytes": 2,
        "body_digest": b"d" * 32,
        "ignored_fields": ("user",),
    } | fields
    request = GenerationRequest(
        id=request_id,
        model=said["model"],
        messages=(Message(role=Role.USER, parts=(TextPart("Hello"),)),),
        sampling=Sampling(max_tokens=said["max_tokens"]),
        deadline_s=said["deadline_at"].timestamp(),
        lane=said["lane"],
        owner=Owner(team_id=said["team_id"], key_id=said["key_id"]),
    )
    return NewWork(id=request_id, **({"request": pack_request(request)} | said))


def rows_of(batch: Batch, count: int, first: int = 1, **fields: Any) -> Iterable[NewWork]:
    """Yield a batch's rows."""
    for line in range(first, first + count):
        yield new_work(
            batch_id=str(batch.pk),
            line=line,
            custom_id=f"row-{line}",
            team_id=batch.team_id,
            key_id=str(batch.key_id),
            created_at=batch.created_at,
            deadline_at=batch.expires_at,
            **fields,
        )


def new_batch(**fields: Any) -> Batch:
    """Make a batch that is being validated."""
    now = timezone.now()
    said: dict[str, Any] = {
        "id": uuid.uuid4(),
        "form": Batch.Form.OPENAI,
        "team_id": 1,
        "team_name": "blue",
        "key_id": KEY,
        "key_name": "laptop",
        "client": "openai/2.0",
        "address": "127.0.0.1",
        "endpoint": "/v1/chat/completions",
        "created_at": now,
        "expires_at": now + WINDOW,
    }
    return Batch.objects.create(**(said | fields))


def new_source(model: str = MODEL) -> DatabaseSource:
    """Return the source of a new engine, its lease begun."""
    source = DatabaseSource(str(uuid.uuid4()), model, "host")
    source.open()
    return source


def finished(item: WorkItem, text: str = "Hi", **fields: Any) -> WorkResult:
    """Return the result of an item that was answered."""
    reason = fields.pop("reason", FinishReason.END)
    usage = fields.get("usage", USAGE)
    end = Finished(reason=reason, usage=usage)
    return result(
        item,
        ending=Ending.FINISHED,
        detail=reason.value,
        answer=Answer(parts=(TextPart(text),), finished=end),
        **fields,
    )


def result(item: WorkItem, **fields: Any) -> WorkResult:
    """Return a result; `ending` must be said."""
    now_s = time.time()
    events: tuple[Event, ...] = ()
    said: dict[str, Any] = {
        "detail": fields["ending"].value,
        "message": "",
        "usage": USAGE,
        "taken_at_s": now_s - 1,
        "first_token_at_s": now_s - 0.5,
        "ended_at_s": now_s,
        "events": events,
    }
    return WorkResult(item=item, **(said | fields))


def no_terms(team_ids: Iterable[int]) -> dict[int, Terms]:
    """Return terms by which every team runs what it likes, for `WORK_TERMS`."""
    return dict.fromkeys(team_ids, Terms())
