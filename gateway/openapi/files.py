"""The routes of files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal
from uuid import UUID

import msgspec
from pydantic import BaseModel, Field

from gateway.errors import OPENAI
from gateway.files.names import file_name
from gateway.files.wire import (
    BATCH_EXPIRY_S,
    MAX_EXPIRY_S,
    MAX_PAGE,
    MIN_EXPIRY_S,
    UPLOADED,
    show_file,
    show_list,
)
from gateway.openapi.part import Part
from gateway.openapi.responses import EXAMPLE_ID, OpenAIError, failures, headers, json_answer
from gateway.openapi.schemas import AnswerModel, Schema, answered, ref
from inference.errors import ErrorCode, TandemError
from jobs.models import StoredFile

_KEYED = (
    ErrorCode.AUTHENTICATION,
    ErrorCode.PERMISSION,
    ErrorCode.TOO_LARGE,
    ErrorCode.INTERNAL,
    ErrorCode.UNAVAILABLE,
)
_FOUND = (*_KEYED, ErrorCode.NOT_FOUND)
_CHECKED = (*_KEYED, ErrorCode.INVALID_REQUEST)

_FileId = Annotated[str, Field(pattern="^file-")]
_Seconds = Annotated[int, Field(ge=0)]


class File(AnswerModel):
    """A file of the team."""

    id: _FileId
    object: Literal["file"]
    bytes: Annotated[int, Field(ge=0)]
    created_at: _Seconds
    expires_at: _Seconds | None
    """When it is deleted."""
    filename: str
    purpose: Annotated[str, Field(json_schema_extra={"enum": list(StoredFile.Purpose.values)})]
    status: Literal["processed"]
    status_details: None


class FileList(AnswerModel):
    """A page of files."""

    object: Literal["list"]
    data: list[File]
    first_id: _FileId | None
    last_id: _FileId | None
    has_more: bool


class DeletedFile(AnswerModel):
    """What is left of a file."""

    id: _FileId
    object: Literal["file"]
    deleted: Literal[True]


_START = datetime(2026, 1, 1, tzinfo=UTC)
_STORED = StoredFile(
    id=UUID(EXAMPLE_ID),
    team_id=1,
    created_at=_START,
    expires_at=_START + timedelta(seconds=BATCH_EXPIRY_S),
    filename="requests.jsonl",
    purpose=StoredFile.Purpose.BATCH,
    size_bytes=120_000,
)
_EXAMPLES: dict[type[BaseModel], Schema] = {
    File: show_file(_STORED),
    FileList: show_list([_STORED], has_more=False),
    DeletedFile: {"id": file_name(_STORED.id), "object": "file", "deleted": True},
}
_ID: Schema = {
    "name": "file_id",
    "in": "path",
    "required": True,
    "description": "The id of a file.",
    "schema": {"type": "string", "minLength": 1},
    "example": file_name(_STORED.id),
}


def part() -> Part:
    """Return what the document says about files."""
    return Part(
        name="Files",
        description="The files that batches are made of, and those that they write.",
        paths={
            "/v1/files": {"post": _upload(), "get": _list()},
            "/v1/files/{file_id}": {
                "get": _about(File, "retrieveFile", "Show a file"),
                "delete": _about(DeletedFile, "deleteFile", "Delete a file"),
            },
            "/v1/files/{file_id}/content": {"get": _content()},
        },
        models=answered(File, FileList, DeletedFile, OpenAIError),
    )


def _upload() -> Schema:
    form = {
        "type": "object",
        "required": ["file", "purpose"],
        "properties": {
            "file": {"type": "string", "contentMediaType": "application/octet-stream"},
            "purpose": {"enum": [purpose.value for purpose in UPLOADED]},
            "expires_after[anchor]": {"const": "created_at"},
            "expires_after[seconds]": {
                "type": "integer",
                "minimum": MIN_EXPIRY_S,
                "maximum": MAX_EXPIRY_S,
            },
        },
        "dependentRequired": {
            "expires_after[anchor]": ["expires_after[seconds]"],
            "expires_after[seconds]": ["expires_after[anchor]"],
        },
    }
    example = {"file": '{"custom_id": "capital", ...}\n', "purpose": "batch"}
    content = {"multipart/form-data": {"schema": form, "example": example}}
    return {
        "operationId": "uploadFile",
        "summary": "Upload a file",
        "description": "Of a file with the purpose `batch` each line must be a JSON object; the "
        "error names the first one that is not.",
        "requestBody": {"required": True, "content": content},
        "responses": {"200": _shown(File), **failures(_CHECKED, OPENAI)},
    }


def _list() -> Schema:
    length = {"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": MAX_PAGE}
    order = {"enum": ["asc", "desc"], "default": "desc"}
    return {
        "operationId": "listFiles",
        "summary": "List files",
        "parameters": [
            _query("purpose", "Only files for this.", {"type": "string", "pattern": r"^[^\x00]*$"}),
            _query("limit", "Length of a page.", length),
            _query("order", "By when they were made.", order),
            _query(
                "after", "The page begins after this file.", {"type": "string", "pattern": "^file-"}
            ),
        ],
        "responses": {"200": _shown(FileList), **failures(_CHECKED, OPENAI)},
    }


def _content() -> Schema:
    found = {
        "headers": headers("x-request-id"),
        "content": {
            "application/octet-stream": {"schema": {"type": "string"}, "example": "{}\n{}\n"}
        },
    }
    ranged = {
        "name": "range",
        "in": "header",
        "description": "A single range of bytes.",
        "schema": {"type": "string", "examples": ["bytes=1000-"]},
    }
    return {
        "operationId": "getFileContent",
        "summary": "Download a file",
        "parameters": [_ID, ranged],
        "responses": {
            "200": {"description": "The bytes.", **found},
            "206": {"description": "The bytes of the range.", **found},
            "416": _unsatisfiable(),
            **failures(_FOUND, OPENAI),
        },
    }


def _unsatisfiable() -> Schema:
    error = TandemError(ErrorCode.INVALID_REQUEST, "the file has 10 bytes, and none of those ...")
    example = msgspec.json.decode(OPENAI.body(error, EXAMPLE_ID))
    description = "The file has none of the range's bytes."
    return json_answer(description, ref(OpenAIError), example, envelope=OPENAI)


def _about(model: type[BaseModel], operation_id: str, summary: str) -> Schema:
    return {
        "operationId": operation_id,
        "summary": summary,
        "parameters": [_ID],
        "responses": {"200": _shown(model), **failures(_FOUND, OPENAI)},
    }


def _shown(model: type[BaseModel]) -> Schema:
    return json_answer(model.__doc__ or "", ref(model), _EXAMPLES[model], envelope=OPENAI)


def _query(name: str, description: str, schema: Schema) -> Schema:
    return {"name": name, "in": "query", "description": description, "schema": schema}
