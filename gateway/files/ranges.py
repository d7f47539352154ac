"""Which part of a file a request asks for (RFC 9110, 14)."""

from __future__ import annotations

import re
from typing import NamedTuple

_RANGE = re.compile(rb"bytes=(\d{0,18})-(\d{0,18})")


class Part(NamedTuple):
    """Bytes from `start` up to and not with `end`."""

    start: int
    end: int


class UnsatisfiableError(Exception):
    """The file has none of the bytes that are asked for."""


def find_part(header: bytes | None, size: int) -> Part | None:
    """Return the part that is asked for; None for the whole file.

    What is no single range of bytes is ignored, as it may be. Raises `UnsatisfiableError`.
    """
    match = _RANGE.fullmatch(header.strip()) if header else None
    if match is None or match.group() == b"bytes=-":
        return None
    first, last = match.groups()
    if not first:
        start, end = max(size - int(last), 0), size
    else:
        start, end = int(first), min(int(last) + 1, size) if last else size
        if last and int(last) < start:
            return None
    if start >= size or start >= end:
        raise UnsatisfiableError
    return Part(start, end)
