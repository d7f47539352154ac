"""What the routes of stored responses answer. A test holds their output against this."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from gateway.openapi.responses_answers import Count, ResponseObject, ResponseStatus
from gateway.openapi.schemas import AnswerModel

Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
StreamStatus = Literal["open", "archived", "cancelled"]


class DeletedResponse(ResponseObject):
    """A response that was deleted, or that ran and is cancelled."""

    deleted: bool


class ListedResponse(AnswerModel):
    """A response without what was asked and answered."""

    id: Annotated[str, Field(pattern="^resp_")]
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    model: str
    status: ResponseStatus
    background: bool
    stream_id: str | None
    custom_id: str | None


class ListedResponses(AnswerModel):
    """A page of responses."""

    object: Literal["list"]
    data: list[ListedResponse]
    first_id: str | None
    last_id: str | None
    has_more: bool


class InputItemList(AnswerModel):
    """A page of items, each as it was sent, with an id."""

    object: Literal["list"]
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool


class FeedError(AnswerModel):
    """What a response failed of."""

    code: str
    message: str


class FeedEvent(AnswerModel):
    """A response that has ended. `result` is there if it has an answer."""

    completion_id: Annotated[str, Field(pattern="^evt_")]
    object: Literal["response.completion"]
    response_id: Annotated[str, Field(pattern="^resp_")]
    custom_id: str | None
    stream_id: str | None
    status: Literal["completed", "incomplete", "failed", "cancelled"]
    result: ResponseObject | None
    error: FeedError | None
    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Count
    cost_micros: int | None
    completed_at: Time | None


class FeedPart(AnswerModel):
    """A part of the feed."""

    object: Literal["list"]
    data: list[FeedEvent]
    has_more: bool


class ResponseStreamRow(AnswerModel):
    """A stream, as a list shows it."""

    id: str
    object: Literal["stream"]
    name: str
    window: Literal["24h"]
    status: StreamStatus
    created_at: Time
    updated_at: Time
    cancelled_at: Time | None
    archived_at: Time | None


class ResponseStreamObject(ResponseStreamRow):
    """A stream with the counts of its responses."""

    total_items: Count
    pending_items: Count
    running_items: Count
    completed_items: Count
    failed_items: Count
    cancelled_items: Count
    completion_ratio: Annotated[float, Field(ge=0, le=1)]
    total_prompt_tokens: Count
    total_completion_tokens: Count
    total_tokens: Count
    last_completion_at: Time | None
    latest_completion_id: str | None


class ResponseStreamList(AnswerModel):
    """A team's streams, newest first."""

    object: Literal["list"]
    items: list[ResponseStreamRow]


class MyTeam(AnswerModel):
    """The team of a key."""

    id: int
    name: str


class Me(AnswerModel):
    """Whose key it is."""

    id: str
    username: str
    """The key's name."""
    role: Literal["admin", "member"]
    scopes: list[str]
    team: MyTeam
