"""What is said differently to some clients."""

from __future__ import annotations

from typing import Any

from gateway.http.request import ApiRequest

# What sference's clients are made of, and call themselves.
_SFERENCE = b"python-httpx/"


def said_to(asked: ApiRequest, response: dict[str, Any]) -> dict[str, Any]:
    """Return a response, or a list's entry, in the words that the caller knows.

    sference's clients know no `queued`, and refuse a response that is: it is in progress to them.
    """
    agent = asked.header(b"user-agent") or b""
    if response["status"] == "queued" and agent.startswith(_SFERENCE):
        return response | {"status": "in_progress"}
    return response
