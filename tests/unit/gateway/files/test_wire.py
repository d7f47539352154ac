"""What OpenAI's Files API takes and shows."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import cast

import pytest
from openai.types import FileObject

from gateway.files.names import file_name, parse_file_name
from gateway.files.wire import Upload, decode_list, decode_upload, show_file, show_list
from inference.errors import ErrorCode, TandemError
from jobs.files import FileQuery
from jobs.models import StoredFile

Purpose = StoredFile.Purpose
FILE_ID = uuid.UUID("01890a5d-ac96-774b-bcce-b302099a8057")


@pytest.mark.parametrize(
    ("fields", "upload"),
    [
        ({"purpose": "batch"}, Upload("a.JSONL", Purpose.BATCH, 2_592_000)),
        ({"purpose": "user_data"}, Upload("a.JSONL", Purpose.USER_DATA, None)),
        (
            {
                "purpose": "batch",
                "expires_after[anchor]": "created_at",
                "expires_after[seconds]": "3600",
            },
            Upload("a.JSONL", Purpose.BATCH, 3600),
        ),
    ],
)
def test_it_reads_the_fields_of_an_upload(fields: dict[str, str], upload: Upload) -> None:
    assert decode_upload({"filename": "a.JSONL", **fields}) == upload


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "purpose"),
        ({"purpose": "fine-tune"}, "purpose"),
        ({"purpose": "batch_output"}, "purpose"),
        ({"purpose": "batch", "filename": "a.json"}, "file"),
        ({"purpose": "batch", "expires_after[seconds]": "3600"}, "expires_after[anchor]"),
        (
            {"purpose": "user_data", "expires_after[anchor]": "created_at"},
            "expires_after[seconds]",
        ),
        *(
            (
                {
                    "purpose": "user_data",
                    "expires_after[anchor]": "created_at",
                    "expires_after[seconds]": seconds,
                },
                "expires_after[seconds]",
            )
            for seconds in ("3599", "2592001", "-1", "\u0663\u0666\u0660\u0660", "9" * 5000, "1e4")
        ),
    ],
)
def test_it_refuses_a_bad_field_by_its_name(fields: dict[str, str], param: str) -> None:
    with pytest.raises(TandemError) as caught:
        decode_upload({"filename": "a.jsonl", **fields})
    assert (caught.value.code, caught.value.param) == (ErrorCode.INVALID_REQUEST, param)


def test_a_name_is_short_and_can_be_printed() -> None:
    upload = decode_upload({"filename": "x" * 300 + "\r\n.jsonl", "purpose": "batch"})
    assert len(upload.filename) == 255
    assert upload.filename.endswith("x.jsonl")


def test_it_reads_a_list_query() -> None:
    query = [("limit", "5"), ("order", "asc"), ("purpose", "batch"), ("after", file_name(FILE_ID))]
    assert decode_list(query, 7) == FileQuery(
        team_id=7, purpose="batch", after=FILE_ID, limit=5, ascending=True
    )
    assert decode_list([("unknown", "x")], 7) == FileQuery(team_id=7)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("limit", text) for text in ("0", "10001", "x")),
        *(("order", "up"), ("after", "x"), ("purpose", "batch\0")),
    ],
)
def test_it_refuses_a_bad_query(name: str, value: str) -> None:
    with pytest.raises(TandemError) as caught:
        decode_list([(name, value)], 7)
    assert caught.value.param == name


@pytest.mark.parametrize("text", ["", "file-", "file-x", str(FILE_ID), f"batch_{FILE_ID}"])
def test_what_is_no_files_id_is_none(text: str) -> None:
    assert parse_file_name(text) is None
    assert parse_file_name(file_name(FILE_ID)) == FILE_ID


def test_a_file_is_shown_in_full() -> None:
    file = StoredFile(
        id=FILE_ID,
        team_id=1,
        created_at=datetime.fromtimestamp(100, UTC),
        expires_at=datetime.fromtimestamp(200, UTC),
        filename="a.jsonl",
        purpose="batch",
        size_bytes=3,
    )
    shown = show_file(file)
    assert shown.keys() >= FileObject.model_fields.keys()
    parsed = FileObject.model_validate(shown, strict=True)
    assert (parsed.created_at, parsed.expires_at, parsed.bytes) == (100, 200, 3)
    page = show_list([file], has_more=True)
    assert (page["first_id"], page["last_id"]) == (parsed.id, parsed.id)
    assert cast("bool", page["has_more"])
    assert show_list([], has_more=False)["first_id"] is None
