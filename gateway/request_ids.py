"""The names that a request, a batch or a file goes by: the plain id, and those of the APIs."""

from __future__ import annotations

import re
from uuid import UUID

_PREFIX = re.compile(r"^(?:req|msg|resp|chatcmpl|batch_req|batch|msgbatch|file)[_-]")


def parse_id(text: str, prefix: str) -> UUID | None:
    """Return the id behind its API's prefix; None if it is something else's, or no id."""
    try:
        return UUID(text.removeprefix(prefix)) if text.startswith(prefix) else None
    except ValueError:
        return None


def parse_request_id(text: str) -> UUID | None:
    """Return the id in what someone copied from an answer, a header or a log; None if none is."""
    try:
        return UUID(_PREFIX.sub("", text.strip()))
    except ValueError:
        return None
