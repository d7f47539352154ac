"""Stored responses as they are read: one, a page of them, and the conversation up to one.

A team sees its own alone; an id of another's fails in the words of one that nobody has. What is
here speaks to the database, and belongs into a thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from gateway.dialects.responses.encode import Shape, render
from gateway.dialects.responses.items import (
    Item,
    input_items,
    locate,
    output_items,
    public_id,
    read_id,
)
from gateway.responses.paging import Page
from inference.errors import ErrorCode, TandemError
from inference.fold import Answer
from jobs import packing
from jobs.models import ResponseStream, StoredResponse, Work
from jobs.paging import beyond

Status = StoredResponse.Status
_LARGE = ("body", "items", "answer", "events")


def find(team_id: int, text: str, param: str | None = None) -> StoredResponse:
    """Return a team's response by its id, with or without prefix. Raises NOT_FOUND."""
    response_id = read_id(text)
    row = None
    if response_id is not None:
        row = StoredResponse.objects.filter(id=response_id, team_id=team_id).first()
    if row is None:
        raise not_found(text, param)
    return row


def not_found(text: str, param: str | None = None) -> TandemError:
    """Return the error for an id that is not one of the team's (contracts 10.6)."""
    return TandemError(ErrorCode.NOT_FOUND, f"Response with id '{text}' not found.", param=param)


def is_over(row: StoredResponse) -> bool:
    """Whether it has ended, whichever way."""
    return row.status not in StoredResponse.OPEN


def is_at_work(row: StoredResponse) -> bool:
    """Whether an engine may still have something to say of it, as of one just cancelled."""
    return not is_over(row) or Work.objects.filter(pk=row.pk).exists()


def listed(team_id: int, page: Page, stream: ResponseStream | None) -> list[StoredResponse]:
    """Return a page of a team's responses, and one more if there are more; without their bodies.

    Raises NOT_FOUND for a page that begins behind a response that is not one of the team's.
    """
    rows = StoredResponse.objects.filter(team_id=team_id).defer(*_LARGE)
    if stream is not None:
        rows = rows.filter(stream=stream)
    if page.after is not None:
        last = find(team_id, page.after, "after")
        rows = beyond(rows, last.id, newer=not page.newest_first)
    sign = "-" if page.newest_first else ""
    return list(rows.order_by(f"{sign}created_at", f"{sign}id")[: page.limit + 1])


def body_of(row: StoredResponse) -> dict[str, Any]:
    """Return the request as it was sent."""
    body: dict[str, Any] = msgspec.json.decode(packing.unpack(bytes(row.body)) or b"{}")
    return body


def answer_of(row: StoredResponse) -> Answer | None:
    """Return the answer of a response that has one."""
    return packing.unpack_answer(bytes(row.answer)) if row.answer else None


def error_of(row: StoredResponse) -> TandemError | None:
    """Return what a failed response failed of."""
    if row.status != Status.FAILED:
        return None
    return TandemError(
        ErrorCode.read(row.error_code),
        row.error_message or "the response could not be made",
    )


def said_before(row: StoredResponse) -> list[Item]:
    """Return the conversation before a response's own input."""
    items: list[Item] = msgspec.json.decode(packing.unpack(bytes(row.items)) or b"[]")
    return items


def asked(row: StoredResponse) -> list[Item]:
    """Return all that a response was made from: the conversation before it, and its input."""
    return said_before(row) + input_items(str(row.id), body_of(row).get("input", ""))


def conversation(team_id: int, text: str) -> list[Item]:
    """Return everything said up to the end of a response, calls and their results too (bug 24).

    Raises NOT_FOUND, and INVALID_REQUEST while it has not ended.
    """
    param = "previous_response_id"
    row = find(team_id, text, param)
    if not is_over(row):
        raise TandemError(
            ErrorCode.INVALID_REQUEST,
            f"Response with id '{text}' has not ended yet: it cannot be continued.",
            param=param,
        )
    answer = answer_of(row)
    said = output_items(str(row.id), answer, body_of(row)) if answer else []
    return asked(row) + said


def referenced(team_id: int, item_ids: Sequence[str]) -> dict[str, Item]:
    """Return those of these items that are in the team's responses, by their ids."""
    response_ids = {place.response_id for place in map(locate, item_ids) if place}
    found: dict[str, Item] = {}
    for row in StoredResponse.objects.filter(team_id=team_id, pk__in=response_ids):
        answer, body = answer_of(row), body_of(row)
        items = input_items(str(row.pk), body.get("input"))
        if answer:
            items += output_items(str(row.pk), answer, body)
        found |= {item["id"]: item for item in items}
    return {item_id: found[item_id] for item_id in item_ids if item_id in found}


def shape_of(row: StoredResponse) -> Shape:
    """Return what a response says apart from its answer."""
    return Shape(
        id=str(row.id),
        created_at_s=row.created_at.timestamp(),
        model=row.model,
        body=body_of(row),
        background=row.background,
        service_tier="flex" if row.lane == "flex" else "default",
        completed_at_s=row.ended_at.timestamp() if row.ended_at else None,
    )


def shown(row: StoredResponse) -> dict[str, Any]:
    """Return the response object."""
    return render(shape_of(row), row.status, answer=answer_of(row), error=error_of(row))


def shown_in_list(row: StoredResponse) -> dict[str, Any]:
    """Return what a list says of a response: everything but what was asked and answered."""
    return {
        "id": public_id(str(row.id)),
        "object": "response",
        "created_at": int(row.created_at.timestamp()),
        "completed_at": int(row.ended_at.timestamp()) if row.ended_at else None,
        "model": row.model,
        "status": row.status,
        "background": row.background,
        "stream_id": str(row.stream_id) if row.stream_id else None,
        "custom_id": row.custom_id or None,
    }


def stream_of(team_id: int, stream_id: UUID | str, param: str | None = None) -> ResponseStream:
    """Return a team's stream. Raises NOT_FOUND."""
    try:
        wanted = UUID(str(stream_id))
    except ValueError:
        wanted = None
    stream = wanted and ResponseStream.objects.filter(id=wanted, team_id=team_id).first()
    if not stream:
        raise TandemError(
            ErrorCode.NOT_FOUND, f"Stream with id '{stream_id}' not found.", param=param
        )
    return stream
