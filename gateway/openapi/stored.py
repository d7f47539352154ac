"""The routes of stored responses, of their feed and streams, and of the key itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, Field

from gateway.dialects.responses.encode import render
from gateway.dialects.responses.items import input_items, public_id
from gateway.errors import OPENAI
from gateway.openapi import examples
from gateway.openapi.part import Part
from gateway.openapi.responses import EXAMPLE_ID, JSON, failures, json_answer
from gateway.openapi.responses_answers import ResponseObject
from gateway.openapi.responses_api import ANSWER, QUESTION, SHAPE, event_schema
from gateway.openapi.schemas import Schema, answered, ref, requested
from gateway.openapi.stored_answers import (
    DeletedResponse,
    FeedPart,
    InputItemList,
    ListedResponses,
    Me,
    ResponseStreamList,
    ResponseStreamObject,
)
from gateway.responses.feed import DEFAULT_LIMIT, completion_id
from gateway.responses.paging import MAX_LIMIT
from inference.errors import ErrorCode

_KEYED = (
    ErrorCode.AUTHENTICATION,
    ErrorCode.PERMISSION,
    ErrorCode.TOO_LARGE,
    ErrorCode.INTERNAL,
    ErrorCode.UNAVAILABLE,
)
_FOUND = (ErrorCode.INVALID_REQUEST, ErrorCode.NOT_FOUND, *_KEYED)
_STREAM_ID = "01a2283a-1e52-7683-90f3-916a0242d541"
_AT = "2026-01-01T00:00:01Z"
_DONE = render(SHAPE, "completed", answer=ANSWER)
_LISTED = {
    "id": public_id(EXAMPLE_ID),
    "object": "response",
    "created_at": 1_767_225_600,
    "completed_at": 1_767_225_601,
    "model": examples.MODEL,
    "status": "completed",
    "background": True,
    "stream_id": None,
    "custom_id": "row-1",
}
_ROW = {
    "id": _STREAM_ID,
    "object": "stream",
    "name": "nightly",
    "window": "24h",
    "status": "open",
    "created_at": _AT,
    "updated_at": _AT,
    "cancelled_at": None,
    "archived_at": None,
}
_COUNTED = _ROW | {
    "total_items": 2,
    "pending_items": 1,
    "running_items": 0,
    "completed_items": 1,
    "failed_items": 0,
    "cancelled_items": 0,
    "completion_ratio": 0.5,
    "total_prompt_tokens": 37,
    "total_completion_tokens": 8,
    "total_tokens": 45,
    "last_completion_at": _AT,
    "latest_completion_id": completion_id(7),
}
_EVENT = {
    "completion_id": completion_id(7),
    "object": "response.completion",
    "response_id": public_id(EXAMPLE_ID),
    "custom_id": "row-1",
    "stream_id": None,
    "status": "completed",
    "result": _DONE,
    "error": None,
    "prompt_tokens": 37,
    "completion_tokens": 8,
    "total_tokens": 45,
    "cost_micros": 12,
    "completed_at": _AT,
}


class CreateStreamBody(BaseModel):
    """A new stream."""

    name: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00]*$")]
    window: Literal["24h"] = "24h"


class ChangeStreamBody(BaseModel):
    """What is to be different."""

    name: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00]*$")] | None = None
    status: Literal["archived", "cancelled"] | None = None


def part() -> Part:
    """Return what the document says about these routes."""
    one = "/v1/responses/{response_id}"
    return Part(
        name="Stored responses",
        description="Responses that are read again, made in the background, followed and resumed; "
        "their feed and streams are those of sference's clients.",
        paths={
            "/v1/responses": {"get": _list()},
            "/v1/responses/events": {"get": _events()},
            one: {"get": _retrieve(), "delete": _delete()},
            f"{one}/cancel": {"post": _cancel()},
            f"{one}/input_items": {"get": _items()},
            "/v1/streams": {"get": _list_streams(), "post": _create_stream()},
            "/v1/streams/{stream_id}": {"get": _show_stream(), "patch": _change_stream()},
            "/v1/auth/me": {"get": _me()},
        },
        models=(
            *requested(CreateStreamBody, ChangeStreamBody),
            *answered(
                *(ListedResponses, FeedPart, InputItemList, DeletedResponse, ResponseObject),
                *(ResponseStreamList, ResponseStreamObject, Me),
            ),
        ),
    )


def _list() -> Schema:
    return _operation(
        _Told("listResponses", "List responses", "A page of them."),
        _Shown(ListedResponses, _page([_LISTED], _LISTED["id"])),
        parameters=[*_paging(MAX_LIMIT), _query("stream_id", "Only those of this stream.", _TEXT)],
    )


def _events() -> Schema:
    cursor = {"type": "string", "pattern": "^evt_[0-9]{1,18}$"}
    wait = {"type": "integer", "minimum": 0, "maximum": 10**9}
    return _operation(
        _Told("listResponseEvents", "What has ended in the background", "A part of the feed."),
        _Shown(FeedPart, {"object": "list", "data": [_EVENT], "has_more": False}),
        parameters=[
            _limit(DEFAULT_LIMIT),
            _query("starting_after", "Only what ended after this event.", cursor),
            _query(
                "ending_before",
                "Only what ended before this event. Cannot be combined with `starting_after`.",
                cursor,
            ),
            _query("stream_id", "Only those of this stream; else only those of none.", _TEXT),
            _query("wait_ms", "How long to wait while there is nothing; 25,000 at most.", wait),
        ],
    )


def _retrieve() -> Schema:
    number = {"type": "integer", "minimum": -1, "maximum": 10**9}
    operation = _operation(
        _Told(
            "retrieveResponse",
            "Read a response again, or follow it",
            "The response: JSON, or server-sent events if `stream` is true.",
        ),
        _Shown(ResponseObject, _DONE),
        parameters=[
            _RESPONSE_ID,
            _query("stream", "Whether to answer with its events.", {"type": "boolean"}),
            _query("starting_after", "Only events behind this number.", number),
        ],
    )
    operation["responses"]["200"]["content"]["text/event-stream"] = {"schema": event_schema()}
    return operation


def _delete() -> Schema:
    return _operation(
        _Told(
            "deleteResponse", "Delete a response, or cancel it while it runs", "What it is then."
        ),
        _Shown(DeletedResponse, _DONE | {"deleted": True}),
        parameters=[_RESPONSE_ID],
    )


def _cancel() -> Schema:
    return _operation(
        _Told("cancelResponse", "Cancel a response in the background", "What it is then."),
        _Shown(ResponseObject, render(SHAPE, "cancelled")),
        parameters=[_RESPONSE_ID],
    )


def _items() -> Schema:
    items = input_items(EXAMPLE_ID, QUESTION)
    return _operation(
        _Told("listResponseInputItems", "What a response was made from", "A page of items."),
        _Shown(InputItemList, _page(items, items[0]["id"])),
        parameters=[_RESPONSE_ID, *_paging(20)],
    )


def _create_stream() -> Schema:
    operation = _operation(
        _Told("createResponseStream", "Make a stream", "The stream."),
        _Shown(ResponseStreamObject, _COUNTED),
        body=_Shown(CreateStreamBody, {"name": "nightly", "window": "24h"}),
    )
    operation["responses"] = {"201": operation["responses"].pop("200"), **operation["responses"]}
    return operation


def _list_streams() -> Schema:
    return _operation(
        _Told("listResponseStreams", "List streams", "The team's streams."),
        _Shown(ResponseStreamList, {"object": "list", "items": [_ROW]}),
    )


def _show_stream() -> Schema:
    return _operation(
        _Told("retrieveResponseStream", "Show a stream", "The stream."),
        _Shown(ResponseStreamObject, _COUNTED),
        parameters=[_STREAM],
    )


def _change_stream() -> Schema:
    return _operation(
        _Told("changeResponseStream", "Rename, archive or cancel a stream", "The stream."),
        _Shown(ResponseStreamObject, _COUNTED),
        parameters=[_STREAM],
        body=_Shown(ChangeStreamBody, {"name": "nightly"}),
        more_failures=(ErrorCode.CONFLICT,),
    )


def _me() -> Schema:
    me = {
        "id": EXAMPLE_ID,
        "username": "laptop",
        "role": "member",
        "scopes": ["batches", "inference", "read"],
        "team": {"id": 1, "name": "default"},
    }
    return _operation(_Told("getMe", "Whose key it is", "The key and its team."), _Shown(Me, me))


class _Told(NamedTuple):
    operation_id: str
    summary: str
    answer: str


class _Shown(NamedTuple):
    model: type[BaseModel]
    example: Any


def _operation(
    told: _Told,
    shown: _Shown,
    *,
    parameters: Sequence[Schema] = (),
    body: _Shown | None = None,
    more_failures: Sequence[ErrorCode] = (),
) -> Schema:
    asked: Schema = {"parameters": [*parameters]} if parameters else {}
    if body is not None:
        content = {JSON: {"schema": ref(body.model), "example": body.example}}
        asked["requestBody"] = {"required": True, "content": content}
    codes = _FOUND if asked else _KEYED
    return {
        "operationId": told.operation_id,
        "summary": told.summary,
        **asked,
        "responses": {
            "200": json_answer(told.answer, ref(shown.model), shown.example, envelope=OPENAI),
            **failures((*codes, *more_failures), OPENAI),
        },
    }


def _page(data: list[dict[str, Any]], only_id: Any) -> Schema:
    return {
        "object": "list",
        "data": data,
        "first_id": only_id,
        "last_id": only_id,
        "has_more": False,
    }


def _query(name: str, description: str, schema: Schema) -> Schema:
    return {"name": name, "in": "query", "description": description, "schema": schema}


def _path(name: str, description: str) -> Schema:
    schema = {"type": "string", "minLength": 1}
    named = {"name": name, "in": "path", "required": True}
    return named | {"description": description, "schema": schema}


def _limit(default: int) -> Schema:
    schema = {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": default}
    return _query("limit", "Length of a page.", schema)


def _paging(default: int) -> list[Schema]:
    return [
        _limit(default),
        _query("order", "By age: newest first, or last.", {"enum": ["desc", "asc"]}),
        _query("after", "The page begins after the one with this id.", _TEXT),
    ]


_TEXT = {"type": "string"}
_RESPONSE_ID = _path("response_id", "The response's id, with or without `resp_`.")
_STREAM = _path("stream_id", "The stream's id.")
