"""Bodies that hold all the requests of a batch: hundreds of megabytes at the most.

Such a body stays on the disk. It is read as one JSON value, but a row's own request stays the bytes
that it is until its turn comes, so that nothing is ever unpacked all at once.
"""

from __future__ import annotations

import codecs
import mmap
import os
import re
from collections.abc import Iterable
from typing import IO, TypeVar

import msgspec

from gateway.dialects.validation import invalid

CUSTOM_ID = r"^[A-Za-z0-9_-]{1,64}\Z"
"""What Anthropic's clients may call a row."""

Buffer = memoryview
T = TypeVar("T")


def mapped(body: IO[bytes]) -> Buffer:
    """Return a body's bytes without a byte order mark.

    Of a file on the disk they are pages that the system reads as they are needed and drops again.
    They go once nothing refers to them any more, be the file closed before or after.
    """
    if not body.seek(0, os.SEEK_END):
        return memoryview(b"")
    try:
        descriptor = body.fileno()
    except OSError:
        body.seek(0)
        view = memoryview(body.read())  # it is in memory as it is
    else:
        view = memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
    mark = len(codecs.BOM_UTF8)
    return view[mark:] if bytes(view[:mark]) == codecs.BOM_UTF8 else view


def decode(decoder: msgspec.json.Decoder[T], body: Buffer) -> T:
    """Decode a body. Raises INVALID_REQUEST that names the field that is wrong by its path."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise invalid(_wording(str(error))) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        reason = str(error).removeprefix("JSON is malformed: ")
        raise invalid(f"The request body is not valid JSON: {reason}") from None
    except RecursionError:
        raise invalid("The request body is nested too deep") from None


def check_unique(custom_ids: Iterable[str]) -> None:
    """Raises INVALID_REQUEST for a name that two rows have."""
    seen: set[str] = set()
    for custom_id in custom_ids:
        if custom_id in seen:
            raise invalid(f"requests: the custom_id '{custom_id}' is used more than once")
        seen.add(custom_id)


_MISSING = re.compile(r"Object missing required field `(\w+)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_INDEX = re.compile(r"\[(\d+)\]")
_LENGTH = re.compile(r"`array` of length ([<>])= (\d+)")
_NAME = f"`str` matching regex {CUSTOM_ID!r}"


def _wording(text: str) -> str:
    """Say it as the rest of the API does: the path first, with dots."""
    reason, _, where = text.partition(" - at `$")
    path = _INDEX.sub(r".\1", where.rstrip("`")).removeprefix(".")
    if missing := _MISSING.fullmatch(reason):
        return f"{path}.{missing[1]}: Field required".removeprefix(".")
    if unknown := _UNKNOWN.fullmatch(reason):
        return f"{path}.{unknown[1]}: Extra inputs are not permitted".removeprefix(".")
    reason = reason.replace(_NAME, "a string of 1 to 64 letters, digits, `_` and `-`")
    return f"{path or 'body'}: {_LENGTH.sub(_items, reason)}"


def _items(match: re.Match[str]) -> str:
    count = int(match[2])
    bound = "at most" if match[1] == "<" else "at least"
    return f"a list with {bound} {count:,} item{'' if count == 1 else 's'}"
