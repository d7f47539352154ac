"""What OpenAI's Files API takes and shows."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from gateway.dialects.validation import invalid, invalid_at
from gateway.files.names import file_name, parse_file_name
from gateway.http.query import integer, newest_first
from gateway.lists import listed
from inference.errors import TandemError
from jobs.files import FileQuery
from jobs.models import StoredFile

MIN_EXPIRY_S = 60 * 60
MAX_EXPIRY_S = 30 * 24 * 60 * 60
BATCH_EXPIRY_S = MAX_EXPIRY_S
"""Files of batches go after so long if nothing else was said."""

MAX_PAGE = 10_000
UPLOADED = (StoredFile.Purpose.BATCH, StoredFile.Purpose.USER_DATA)
_FILENAME_CHARS = 255


class Upload(NamedTuple):
    """An upload's form. `expires_after_s` None: never."""

    filename: str
    purpose: StoredFile.Purpose
    expires_after_s: int | None


def decode_upload(form: dict[str, str]) -> Upload:
    """Read the fields beside the file. Raises INVALID_REQUEST naming the one that is wrong."""
    purpose = _purpose(form.get("purpose"))
    filename = "".join(filter(str.isprintable, form["filename"]))[-_FILENAME_CHARS:]
    if purpose == StoredFile.Purpose.BATCH and not filename.lower().endswith(".jsonl"):
        raise invalid("Invalid file format for Batch API. Must be .jsonl.", param="file")
    return Upload(filename, purpose, _expiry(form, purpose))


def _purpose(text: str | None) -> StoredFile.Purpose:
    if text is None:
        raise _missing("purpose")
    if text not in UPLOADED:
        raise invalid_at("purpose", f"must be one of {', '.join(UPLOADED)}")
    return StoredFile.Purpose(text)


def _expiry(form: dict[str, str], purpose: StoredFile.Purpose) -> int | None:
    anchor, text = form.get("expires_after[anchor]"), form.get("expires_after[seconds]")
    if anchor is None and text is None:
        return BATCH_EXPIRY_S if purpose == StoredFile.Purpose.BATCH else None
    if anchor != "created_at":
        raise invalid_at("expires_after[anchor]", "must be created_at")
    if text is None:
        raise _missing("expires_after[seconds]")
    return integer(form, "expires_after[seconds]", 0, at_least=MIN_EXPIRY_S, at_most=MAX_EXPIRY_S)


def _missing(name: str) -> TandemError:
    return invalid(f"{name}: Field required", param=name, reason="missing_required_parameter")


def decode_list(query: list[tuple[str, str]], team_id: int) -> FileQuery:
    """Read a list's query. Raises INVALID_REQUEST naming the parameter that is wrong."""
    asked = dict(query)
    purpose = asked.get("purpose")
    if purpose is not None and "\0" in purpose:  # PostgreSQL's text has none
        raise invalid_at("purpose", "must not have NUL in it")
    return FileQuery(
        team_id=team_id,
        purpose=purpose,
        after=_after(asked.get("after")),
        limit=integer(asked, "limit", MAX_PAGE, at_least=1, at_most=MAX_PAGE),
        ascending=not newest_first(asked),
    )


def _after(text: str | None) -> UUID | None:
    if text is None:
        return None
    file_id = parse_file_name(text)
    if file_id is None:
        raise invalid_at("after", "must be the id of a file")
    return file_id


def show_file(file: StoredFile) -> dict[str, Any]:
    """Return the File object."""
    return {
        "id": file_name(file.id),
        "object": "file",
        "bytes": file.size_bytes,
        "created_at": int(file.created_at.timestamp()),
        "expires_at": int(file.expires_at.timestamp()) if file.expires_at else None,
        "filename": file.filename,
        "purpose": file.purpose,
        "status": "processed",
        "status_details": None,
    }


def show_list(files: list[StoredFile], *, has_more: bool) -> dict[str, Any]:
    """Return a page of files."""
    return listed([show_file(file) for file in files], has_more=has_more)
