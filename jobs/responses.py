"""Stored responses: made with the request, and brought to a final status whatever dies meanwhile.

A background response is made together with the piece of work that answers it, and ends in the
transaction that ends the work (`jobs.work`). One that is answered while its caller waits is ended
by its gateway; should that have died, the sweep ends it after its deadline.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

import msgspec
from django.db import transaction
from django.db.models import Exists, OuterRef

from inference.errors import ErrorCode
from jobs.models import StoredResponse, Work
from jobs.packing import pack
from jobs.work import cancel as work_cancel
from jobs.work import replies
from jobs.work.enqueue import NewWork, insert, wake_on_commit
from jobs.work.replies import ResponseEnd, completed, failed

__all__ = [
    "NewResponse",
    "ResponseEnd",
    "cancel",
    "completed",
    "create",
    "delete",
    "failed",
    "finish",
    "sweep",
]

Status = StoredResponse.Status
# A gateway ends its responses at their deadline, and needs a moment to say so.
_GRACE = timedelta(seconds=30)
_AT_ONCE = 500


class NewResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A response as it begins; the fields are columns of `jobs.models.StoredResponse`.

    Ids are UUIDs in canonical form. `body` and `items` are JSON, not compressed yet: they are kept
    as `jobs.packing.pack` makes them.
    """

    id: str
    team_id: int
    key_id: str
    model: str
    lane: str
    created_at: datetime
    deadline_at: datetime
    expires_at: datetime
    background: bool = False
    streamed: bool = False
    previous_id: str | None = None
    stream_id: str | None = None
    custom_id: str = ""
    body: bytes = b""
    items: bytes = b""


def create(new: NewResponse, work: NewWork | None = None) -> None:
    """Store a response: QUEUED with the work that answers it, else IN_PROGRESS.

    The two have the same id, and are stored together or not at all.
    """
    fields = msgspec.structs.asdict(new) | {"body": pack(new.body), "items": pack(new.items)}
    if work is None:
        fields |= {"status": Status.IN_PROGRESS, "started_at": new.created_at}
    with transaction.atomic():
        StoredResponse.objects.create(**fields)
        if work is not None:
            insert([work])
            wake_on_commit([work.model])


def finish(response_id: str, end: ResponseEnd, ended_at: datetime) -> bool:
    """End a response that was answered while its caller waited; False if it was not open."""
    with transaction.atomic():
        return bool(replies.end({UUID(response_id): end}, ended_at))


def cancel(response_id: str, team_id: int) -> StoredResponse | None:
    """Cancel a background response, for good and at once, and return it; None: there is none.

    An engine that is at it is told to stop, and what it has done until then is billed. Of a
    response that has ended, and of one that is not in the background, nothing changes.
    """
    found = StoredResponse.objects.filter(pk=response_id, team_id=team_id)
    response = found.first()
    if response is not None and response.background and response.status in StoredResponse.OPEN:
        work_cancel.cancel(response_id)
        response = found.first()
    return response


def delete(response_id: str, team_id: int) -> bool:
    """Forget a response that has ended; False if there is none."""
    found = StoredResponse.objects.filter(pk=response_id, team_id=team_id)
    removed, _ = found.exclude(status__in=StoredResponse.OPEN).delete()
    return bool(removed)


def sweep(now: datetime) -> int:
    """End responses that nobody answers any more, their deadline being over; return how many."""
    open_ones = StoredResponse.objects.filter(
        ~Exists(Work.objects.filter(pk=OuterRef("pk"))),
        status__in=StoredResponse.OPEN,
        deadline_at__lte=now - _GRACE,
    )
    lost = list(open_ones.order_by("deadline_at").values_list("pk", flat=True)[:_AT_ONCE])
    end = failed(ErrorCode.INTERNAL, "the service lost the request before it was answered")
    with transaction.atomic():
        return len(replies.end(dict.fromkeys(lost, end), now))
