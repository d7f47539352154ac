"""The routes of batches: Anthropic's, and the one path that OpenAI's and sference's share."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from pydantic import BaseModel

from gateway.batches.anthropic.show import batch_name
from gateway.batches.anthropic.show import show_batch as show_message_batch
from gateway.batches.inline import MAX_KEY_CHARS
from gateway.batches.openai.show import batch_name as openai_name
from gateway.batches.openai.show import show_batch as show_openai_batch
from gateway.batches.openai.wire import BatchBody
from gateway.batches.sference.show import results_url
from gateway.batches.sference.show import show_batch as show_inline_batch
from gateway.dialects.anthropic.models import DEFAULT_PAGE, MAX_PAGE
from gateway.errors import ANTHROPIC, SHARED, Envelope
from gateway.openapi import examples
from gateway.openapi.batches_answers import (
    Batch,
    BatchList,
    DeletedMessageBatch,
    InlineBatch,
    InlineBatchBody,
    InlineResults,
    MessageBatch,
    MessageBatchBody,
    MessageBatchList,
)
from gateway.openapi.part import Part
from gateway.openapi.responses import (
    EXAMPLE_ID,
    JSON,
    SharedError,
    failures,
    headers,
    json_answer,
)
from gateway.openapi.schemas import Schema, answered, ref, requested
from inference.errors import ErrorCode
from jobs.models import Batch as StoredBatch

_KEYED = (
    ErrorCode.AUTHENTICATION,
    ErrorCode.PERMISSION,
    ErrorCode.TOO_LARGE,
    ErrorCode.INTERNAL,
    ErrorCode.UNAVAILABLE,
)
_LISTED = (*_KEYED, ErrorCode.INVALID_REQUEST)
_FOUND = (*_LISTED, ErrorCode.NOT_FOUND)
_MADE = (*_LISTED, ErrorCode.BALANCE_EXHAUSTED, ErrorCode.CONFLICT)

_START = datetime(2026, 1, 1, tzinfo=UTC)
_STORED = StoredBatch(
    id=UUID(EXAMPLE_ID),
    form=StoredBatch.Form.ANTHROPIC,
    team_id=1,
    key_id=UUID(int=1),
    endpoint="/v1/chat/completions",
    model=examples.MODEL,
    input_file_ref=UUID(EXAMPLE_ID),
    created_at=_START,
    in_progress_at=_START,
    expires_at=_START + timedelta(days=1),
    status=StoredBatch.Status.IN_PROGRESS,
    total=1,
)
_MESSAGE = examples.MESSAGES["text"]["value"]
_CHAT = {"model": examples.MODEL, "messages": _MESSAGE["messages"]}
_ONE_MESSAGE = {"requests": [{"custom_id": "capital", "params": _MESSAGE}]}
_FILE = {
    "input_file_id": f"file-{EXAMPLE_ID}",
    "endpoint": "/v1/chat/completions",
    "completion_window": "24h",
}
_INLINE = {"requests": [{"custom_id": "capital", "body": _CHAT}]}
_KEY = {
    "name": "idempotency-key",
    "in": "header",
    "description": "The same request with the same key makes one batch, however often it is sent.",
    "schema": {"type": "string", "maxLength": MAX_KEY_CHARS},
}


def anthropic_part() -> Part:
    """Return what the document says about Message Batches."""
    one = _path("batch", "The id of a batch.", batch_name(_STORED.id))
    return Part(
        name="Message Batches",
        description="Many Messages requests at once, at a lower price, within 24 hours.",
        paths={
            "/v1/messages/batches": {"post": _create_messages(), "get": _list_messages()},
            "/v1/messages/batches/{batch}": {
                "get": _about(MessageBatch, "retrieveMessageBatch", "Show a batch", one),
                "delete": _about(
                    DeletedMessageBatch,
                    "deleteMessageBatch",
                    "Delete a batch that has ended, with its results",
                    one,
                ),
            },
            "/v1/messages/batches/{batch}/cancel": {
                "post": _about(
                    MessageBatch, "cancelMessageBatch", "Run no more of a batch's requests", one
                )
            },
            "/v1/messages/batches/{batch}/results": {
                "get": _lines("getMessageBatchResults", "application/x-jsonl", ANTHROPIC, one)
            },
        },
        models=(
            *requested(MessageBatchBody),
            *answered(MessageBatch, MessageBatchList, DeletedMessageBatch),
        ),
    )


def shared_part() -> Part:
    """Return what the document says about `/v1/batches`."""
    either = _path(
        "batch", "`batch_...` for a batch of a file, a bare UUID for another.", EXAMPLE_ID
    )
    inline = _path("batch", "The id of a batch that came with its requests.", EXAMPLE_ID)
    return Part(
        name="Batches",
        description="Many requests at once, at a lower price, within 24 hours: OpenAI's batches of "
        "files, and sference's, whose requests stand in the body.",
        paths={
            "/v1/batches": {"post": _create(), "get": _list()},
            "/v1/batches/{batch}": {"get": _one("retrieveBatch", "Show a batch", either)},
            "/v1/batches/{batch}/cancel": {
                "post": _one("cancelBatch", "Run no more of a batch's requests", either)
            },
            "/v1/batches/{batch}/results": {"get": _results(inline)},
            "/v1/batches/{batch}/results.jsonl": {
                "get": _lines("getBatchResultLines", "application/x-ndjson", SHARED, inline)
            },
        },
        models=(
            *requested(BatchBody, InlineBatchBody),
            *answered(Batch, BatchList, InlineBatch, InlineResults, SharedError),
        ),
    )


def _create_messages() -> Schema:
    content = {
        JSON: {
            "schema": ref(MessageBatchBody),
            "examples": {"one": {"summary": "One request", "value": _ONE_MESSAGE}},
        }
    }
    return {
        "operationId": "createMessageBatch",
        "summary": "Send a batch",
        "parameters": [_KEY],
        "requestBody": {"required": True, "content": content},
        "responses": {"200": _shown(MessageBatch), **failures(_MADE)},
    }


def _list_messages() -> Schema:
    limit = {"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": DEFAULT_PAGE}
    cursor = {"type": "string", "pattern": "^msgbatch_"}
    return {
        "operationId": "listMessageBatches",
        "summary": "List batches, newest first",
        "parameters": [
            _query("limit", "Length of a page.", limit),
            _query("after_id", "The page begins after this batch.", cursor),
            _query(
                "before_id",
                "The page ends before this batch. Cannot be combined with `after_id`.",
                cursor,
            ),
        ],
        "responses": {"200": _shown(MessageBatchList), **failures(_LISTED)},
    }


def _create() -> Schema:
    content = {
        JSON: {
            "schema": {"anyOf": [ref(BatchBody), ref(InlineBatchBody)]},
            "examples": {
                "file": {"summary": "Of a file that was uploaded", "value": _FILE},
                "inline": {"summary": "With its requests", "value": _INLINE},
            },
        }
    }
    return {
        "operationId": "createBatch",
        "summary": "Send a batch",
        "parameters": [_KEY],
        "requestBody": {"required": True, "content": content},
        "responses": {
            "200": _shown(Batch, SHARED),
            "201": _shown(InlineBatch, SHARED),
            **failures(_MADE, SHARED),
        },
    }


def _list() -> Schema:
    limit = {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}
    cursor = {"type": "string", "pattern": "^batch_"}
    return {
        "operationId": "listBatches",
        "summary": "List batches, newest first",
        "description": "`data` has a page of the batches of files, `items` the newest 100 of the "
        "others.",
        "parameters": [
            _query("limit", "Length of a page.", limit),
            _query("after", "The page begins after this batch.", cursor),
        ],
        "responses": {"200": _shown(BatchList, SHARED), **failures(_LISTED, SHARED)},
    }


def _one(operation_id: str, summary: str, parameter: Schema) -> Schema:
    shown = _shown(Batch, SHARED)
    shown["content"][JSON] = {
        "schema": {"anyOf": [ref(Batch), ref(InlineBatch)]},
        "example": _EXAMPLES[Batch],
    }
    codes = (*_FOUND, ErrorCode.CONFLICT) if operation_id.startswith("cancel") else _FOUND
    return {
        "operationId": operation_id,
        "summary": summary,
        "parameters": [parameter],
        "responses": {"200": shown, **failures(codes, SHARED)},
    }


def _results(parameter: Schema) -> Schema:
    return {
        "operationId": "getBatchResults",
        "summary": "Get the results of a batch that came with its requests",
        "parameters": [parameter],
        "responses": {"200": _shown(InlineResults, SHARED), **failures(_FOUND, SHARED)},
    }


def _about(model: type[BaseModel], operation_id: str, summary: str, parameter: Schema) -> Schema:
    return {
        "operationId": operation_id,
        "summary": summary,
        "parameters": [parameter],
        "responses": {"200": _shown(model), **failures(_FOUND)},
    }


def _lines(operation_id: str, kind: str, envelope: Envelope, parameter: Schema) -> Schema:
    identity = envelope.identity(EXAMPLE_ID)[0].decode()
    answer = {
        "description": "One line for each request, in JSON.",
        "headers": headers(identity),
        "content": {kind: {"schema": {"type": "string"}, "example": '{"custom_id": "capital"}\n'}},
    }
    return {
        "operationId": operation_id,
        "summary": "Get the results of a batch, as lines",
        "parameters": [parameter],
        "responses": {"200": answer, **failures(_FOUND, envelope)},
    }


def _shown(model: type[BaseModel], envelope: Envelope = ANTHROPIC) -> Schema:
    description = (model.__doc__ or "").partition("\n")[0]
    return json_answer(description, ref(model), _EXAMPLES[model], envelope=envelope)


def _examples() -> dict[type[BaseModel], Any]:
    """Return an example of each answer, as the encoders write it."""
    message_batch = show_message_batch(_STORED)
    batch, inline = show_openai_batch(_STORED), show_inline_batch(_STORED)
    results = {
        "batch_id": EXAMPLE_ID,
        "status": "running",
        "output_url": results_url(_STORED),
        "completed_at": None,
        "results": None,
    }
    name, other = batch_name(_STORED.id), openai_name(_STORED.id)
    first = {"has_more": False, "first_id": name, "last_id": name}
    made: dict[type[BaseModel], Any] = {
        MessageBatch: message_batch,
        MessageBatchList: first | {"data": [message_batch]},
        DeletedMessageBatch: {"id": name, "type": "message_batch_deleted"},
        Batch: batch,
        BatchList: first
        | {"object": "list", "data": [batch], "items": [inline]}
        | {"first_id": other, "last_id": other},
        InlineBatch: inline,
        InlineResults: results,
    }
    return {model: msgspec.json.decode(msgspec.json.encode(shown)) for model, shown in made.items()}


_EXAMPLES = _examples()


def _path(name: str, description: str, example: str) -> Schema:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": description,
        "schema": {"type": "string", "minLength": 1},
        "example": example,
    }


def _query(name: str, description: str, schema: Schema) -> Schema:
    return {"name": name, "in": "query", "description": description, "schema": schema}
