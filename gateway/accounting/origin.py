"""Where a request came from, as the audit trail keeps it."""

from __future__ import annotations

import re
from typing import NamedTuple

from gateway.http.request import ApiRequest

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


class Origin(NamedTuple):
    """The client and what it says of itself; the fields are the trail's. Empty: it says nothing."""

    client: str
    address: str
    trace_id: str
    session_id: str


def origin_of(asked: ApiRequest) -> Origin:
    """Return where a request came from."""
    peer = asked.scope.get("client") or ("", 0)
    trace = _TRACEPARENT.match(_text(asked, b"traceparent"))
    return Origin(
        client=_text(asked, b"user-agent")[:200],
        address=str(peer[0])[:64],
        trace_id=trace[1] if trace else "",
        session_id=_text(asked, b"x-claude-code-session-id")[:100],
    )


def _text(asked: ApiRequest, header: bytes) -> str:
    # PostgreSQL keeps no NUL, and nobody needs one.
    return (asked.header(header) or b"").decode("latin-1").replace("\0", "")
