"""The names that one request goes by: the plain id, and those that the APIs' answers give it."""

from __future__ import annotations

import re
from uuid import UUID

_PREFIX = re.compile(r"^(?:req|msg|resp|chatcmpl)[_-]")


def parse_request_id(text: str) -> UUID | None:
    """Return the id in what someone copied from an answer, a header or a log; None if none is."""
    try:
        return UUID(_PREFIX.sub("", text.strip()))
    except ValueError:
        return None
