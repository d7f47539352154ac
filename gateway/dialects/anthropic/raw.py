"""Requests that travel as they were sent: to models whose upstream speaks this API itself.

Only what admission needs is looked at. Whether the rest is right is the upstream's to say, and
what it says comes back as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, ValidationError

from gateway.dialects.anthropic.encode import PING, failure
from gateway.dialects.anthropic.wire import Tokens
from gateway.dialects.connectors import MAX_SERVERS, MAX_TOKEN_CHARS
from gateway.dialects.context import ParseContext
from gateway.dialects.validation import Wire, first_error, invalid, invalid_at
from gateway.http.sse import COMMENT
from inference.backends.json_spans import MAX_MEMBERS, members
from inference.errors import TandemError
from inference.events import Event, Failed, Finished, RawFrame
from inference.raw_error import error_of
from inference.request import GenerationRequest, RawRequest, Sampling

MESSAGES = "/v1/messages"
COUNT_TOKENS = "/v1/messages/count_tokens"

# What else a header says is nobody's business there: keys and cookies, what proxies say of the
# caller, and whatever is about one connection only.
_CARRIED = frozenset({"user-agent", "x-app", "traceparent", "tracestate"})
_CARRIED_FAMILIES = ("anthropic-", "x-claude-code-", "x-stainless-")
# Whose account is used there is the operator's to say.
_STAYS_HERE = frozenset({"anthropic-organization-id", "anthropic-workspace-id"})
# What HTTP has in no header: sent on, it would be refused as the service's own mistake.
_FORBIDDEN = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

Headers = tuple[tuple[str, str], ...]


class RawBody(Wire):
    """What admission needs of a body."""

    model: Annotated[str, Field(min_length=1, max_length=256)]
    max_tokens: Tokens
    stream: bool | None = None


class RawCountBody(RawBody):
    """The same for counting, which has no answer."""

    max_tokens: Tokens = 0


def decode_raw(
    obj: dict[str, Any], parameters: Mapping[str, Any], kind: type[RawBody] = RawBody
) -> RawBody:
    """Check a decoded body, with the fields that the operator has set in place of the caller's.

    Raises INVALID_REQUEST that names the first wrong field.
    """
    _check_servers(obj.get("mcp_servers"))
    try:
        return kind.model_validate({**obj, **parameters})
    except ValidationError as error:
        raise first_error(error) from None


def check_members(obj: dict[str, Any], body: bytes) -> None:
    """Check that a body can be edited in its text, and says nothing twice.

    Readers differ in which of two members with one key counts: the upstream could go by another
    limit than was held for. Raises INVALID_REQUEST.
    """
    if len(obj) > MAX_MEMBERS:
        raise invalid(f"The request body has more than {MAX_MEMBERS:,} members")
    try:
        for _ in members(body, once=True):
            pass
    except ValueError as error:
        raise invalid(f"The request body cannot be passed on: {error}") from None


def carried_headers(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return those of a request's headers that travel with its body, in their order.

    Raises INVALID_REQUEST for one that no upstream would take.
    """
    decoded = ((name.decode("latin-1").lower(), value) for name, value in headers)
    return tuple(
        (name, _carried_value(name, value))
        for name, value in decoded
        if name in _CARRIED or (name.startswith(_CARRIED_FAMILIES) and name not in _STAYS_HERE)
    )


def _carried_value(name: str, value: bytes) -> str:
    if not _NAME.fullmatch(name):
        raise invalid(f"{name:.100}: a header cannot have this name")
    try:
        text = value.decode().strip(" \t")
    except UnicodeDecodeError:
        raise invalid(f"{name}: a header must be UTF-8") from None
    if _FORBIDDEN.search(text):
        raise invalid(f"{name}: control characters are not allowed in a header")
    return text


def carried_path(path: str, query: Sequence[tuple[str, str]]) -> str:
    """Return a path with what of its query the API knows."""
    return f"{path}?beta=true" if ("beta", "true") in query else path


def _check_servers(servers: Any) -> None:
    """Their tokens are looked for in all that the upstream says."""
    if not isinstance(servers, list):
        return
    if len(servers) > MAX_SERVERS:
        raise invalid_at("mcp_servers", f"more than {MAX_SERVERS} MCP servers")
    for index, server in enumerate(servers):
        match server:
            case {"authorization_token": str(token)} if len(token) > MAX_TOKEN_CHARS:
                path = f"mcp_servers.{index}.authorization_token"
                raise invalid_at(path, f"more than {MAX_TOKEN_CHARS} characters")


def raw_request(body: RawBody, context: ParseContext, raw: RawRequest) -> GenerationRequest:
    """Return the canonical request, which says what the service must know."""
    return GenerationRequest(
        id=context.request_id,
        model=context.model,
        messages=(),
        sampling=Sampling(max_tokens=body.max_tokens),
        deadline_s=context.deadline_s,
        lane=context.lane,
        owner=context.owner,
        raw=raw,
    )


class RawStream:
    """Passes an upstream's frames on. `over`: the last one was made."""

    def __init__(self, request_id: str) -> None:
        self._request_id = request_id
        self._begun = False
        self._told_end = False
        self.over = False

    def refusal(self, event: Event) -> TandemError | None:
        """Return the error if the very first event says that there will be no answer."""
        return error_of(event) if isinstance(event, Failed) else None

    def feed(self, event: Event) -> bytes:
        """Return the frames of the next event, empty if it has none.

        An error that the upstream has told in its stream is not told again.
        """
        if isinstance(event, RawFrame):
            self._begun = True
            self._told_end = event.last
            return event.data
        self.over = isinstance(event, Finished | Failed)
        if isinstance(event, Failed) and not self._told_end:
            return failure(error_of(event), self._request_id)
        return b""

    def keep_alive(self, *, begun: bool) -> bytes:
        """Return a ping, but none before the first frame: some clients take the first for it."""
        return PING if self._begun else COMMENT
