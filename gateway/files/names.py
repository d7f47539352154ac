"""The names that files go by in OpenAI's API."""

from __future__ import annotations

from uuid import UUID

from gateway.request_ids import parse_id

_PREFIX = "file-"


def file_name(file_id: UUID) -> str:
    """Return the id as clients see it."""
    return f"{_PREFIX}{file_id}"


def parse_file_name(text: str) -> UUID | None:
    """Return the id in what a client sent; None if it cannot be a file's."""
    return parse_id(text, _PREFIX)
