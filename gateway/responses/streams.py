"""Streams: a team's named groups of background responses, as sference's clients use them.

What is here speaks to the database, and belongs into a thread.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import uuid_utils
from django.db import transaction
from django.db.models import Count, Max, Q, Sum
from django.utils import timezone

from gateway.responses.feed import completion_id
from gateway.responses.rows import stream_of
from gateway.responses.times import iso
from inference.errors import ErrorCode, TandemError
from jobs import responses
from jobs.models import RequestRecord, ResponseStream, StoredResponse

Status = ResponseStream.Status
WINDOW = "24h"
_AT_ONCE = 500
_LISTED = 1000


def create(team_id: int, key_id: str, name: str) -> ResponseStream:
    """Make a stream."""
    return ResponseStream.objects.create(
        id=str(uuid_utils.uuid7()), team_id=team_id, key_id=key_id, name=name
    )


def lock_open(team_id: int, stream_id: UUID) -> None:
    """Keep a stream open until the end of the transaction.

    Raises NOT_FOUND, and CONFLICT if it is not open any more.
    """
    param = "metadata.stream_id"
    stream_of(team_id, stream_id, param)
    stream = ResponseStream.objects.select_for_update(no_key=True).get(pk=stream_id)
    if stream.status != Status.OPEN:
        raise TandemError(
            ErrorCode.CONFLICT,
            f"Stream '{stream_id}' is {stream.status}: it takes no more responses.",
            param=param,
        )


def change(
    team_id: int, stream_id: str, *, name: str | None = None, status: str | None = None
) -> ResponseStream:
    """Rename a stream, archive or cancel it; return it as it is then.

    An archived or cancelled stream takes no more responses. Cancelling cancels those that no
    engine has begun. Both are harmless when repeated. Raises NOT_FOUND, and CONFLICT for a way
    back.
    """
    with transaction.atomic():
        pk = stream_of(team_id, stream_id).pk
        stream = ResponseStream.objects.select_for_update(no_key=True).get(pk=pk)
        if name is not None:
            stream.name = name
        if status is not None and status != stream.status:
            _close(stream, status)
        stream.save()
    if stream.status == Status.CANCELLED:
        _cancel_waiting(stream)
    return stream


def _close(stream: ResponseStream, status: str) -> None:
    if status == Status.OPEN or stream.status == Status.CANCELLED:
        raise TandemError(
            ErrorCode.CONFLICT, f"Stream '{stream.pk}' is {stream.status}, and stays it."
        )
    stream.status, stream.closed_at = status, timezone.now()


def _cancel_waiting(stream: ResponseStream) -> None:
    """Cancel what no engine has begun: nothing is added to it any more."""
    waiting = StoredResponse.objects.filter(stream=stream, status=StoredResponse.Status.QUEUED)
    ids = list(waiting.order_by("pk").values_list("pk", flat=True)[:_AT_ONCE])
    while ids:
        for response_id in ids:
            responses.cancel(str(response_id), stream.team_id)
        ids = list(
            waiting.filter(pk__gt=ids[-1]).order_by("pk").values_list("pk", flat=True)[:_AT_ONCE]
        )


def listed(team_id: int) -> list[ResponseStream]:
    """Return a team's streams, newest first."""
    return list(ResponseStream.objects.filter(team_id=team_id)[:_LISTED])


def shown(stream: ResponseStream) -> dict[str, Any]:
    """Return a stream as a list shows it."""
    return {
        "id": str(stream.pk),
        "object": "stream",
        "name": stream.name,
        "window": WINDOW,
        "status": stream.status,
        "created_at": iso(stream.created_at),
        "updated_at": iso(stream.updated_at),
        "cancelled_at": iso(stream.closed_at) if stream.status == Status.CANCELLED else None,
        "archived_at": iso(stream.closed_at) if stream.status == Status.ARCHIVED else None,
    }


def shown_whole(stream: ResponseStream) -> dict[str, Any]:
    """Return a stream with its counts."""
    responses_of = StoredResponse.objects.filter(stream=stream)
    counts = responses_of.aggregate(
        total=Count("pk"),
        pending=Count("pk", Q(status="queued")),
        running=Count("pk", Q(status="in_progress")),
        completed=Count("pk", Q(status__in=["completed", "incomplete"])),
        failed=Count("pk", Q(status="failed")),
        cancelled=Count("pk", Q(status="cancelled")),
        last_at=Max("ended_at"),
        last=Max("number"),
    )
    used = RequestRecord.objects.filter(pk__in=responses_of.values("pk")).aggregate(
        prompt=Sum("input_tokens", default=0), answer=Sum("output_tokens", default=0)
    )
    total = counts["total"]
    over = counts["completed"] + counts["failed"] + counts["cancelled"]
    return {
        **shown(stream),
        "total_items": total,
        "pending_items": counts["pending"],
        "running_items": counts["running"],
        "completed_items": counts["completed"],
        "failed_items": counts["failed"],
        "cancelled_items": counts["cancelled"],
        "completion_ratio": over / total if total else 0.0,
        "total_prompt_tokens": used["prompt"],
        "total_completion_tokens": used["answer"],
        "total_tokens": used["prompt"] + used["answer"],
        "last_completion_at": iso(counts["last_at"]),
        "latest_completion_id": counts["last"] and completion_id(counts["last"]),
    }
