"""The endpoints that a batch's rows may be for, each read by its own dialect.

A draft is a row's body, checked: all that is left to do is to load its images and to build the
canonical request. What the answer will repeat of the body is its echo, in JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from gateway.accounting.credentials import hide_credentials
from gateway.config import Config
from gateway.dialects.anthropic import parse as anthropic
from gateway.dialects.anthropic.raw import Headers, check_members, decode_raw, raw_request
from gateway.dialects.anthropic.tools import McpToolset
from gateway.dialects.anthropic.wire import MessagesBody, decode_messages
from gateway.dialects.chat import parse as chat
from gateway.dialects.chat.wire import decode_chat
from gateway.dialects.context import ParseContext
from gateway.dialects.responses import parse as responses
from gateway.dialects.responses import wire as responses_wire
from gateway.dialects.unknown import UnknownFields
from gateway.dialects.validation import invalid
from gateway.image_source import ImageSource
from gateway.serving.models import raw_parameters
from inference.catalogue import ModelEntry
from inference.request import GenerationRequest, ImagePart, RawRequest

MESSAGES = "/v1/messages"
CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"

JsonObject = dict[str, Any]
Build = Callable[[ParseContext, Sequence[ImagePart]], GenerationRequest]


class Draft(NamedTuple):
    """A row's body, checked. `model` is the name that it has for the model.

    `ignored` names its fields that have no effect.
    """

    model: str
    ignored: tuple[str, ...]
    sources: list[ImageSource]
    build: Build
    echo: bytes | None = None


class Rules(NamedTuple):
    """What the operator has set: what becomes of unknown fields, and whether requests may bring
    MCP servers along (`connectors`)."""

    unknown: UnknownFields = "ignore"
    connectors: bool = False


def rules_of(config: Config) -> Rules:
    """Return what the settings say."""
    return Rules(unknown=config.UNKNOWN_FIELDS, connectors=config.MCP_SERVERS_IN_REQUESTS)


class Endpoint(NamedTuple):
    """One endpoint: the dialect that answers, and how a decoded body becomes a draft.

    `draft` raises `TandemError` naming the field that is wrong.
    """

    dialect: str
    draft: Callable[[JsonObject, Rules], Draft]


def _messages(obj: JsonObject, rules: Rules) -> Draft:
    body, ignored = decode_messages(obj, rules.unknown, connectors=rules.connectors)
    if not rules.connectors:
        _refuse_servers(obj, body)
    _refuse(obj, "stream")
    return Draft(
        model=body.model,
        ignored=ignored,
        sources=anthropic.image_sources(body),
        build=lambda context, images: anthropic.to_request(body, context, images),
    )


def _refuse_servers(obj: JsonObject, body: MessagesBody) -> None:
    """In realtime a header would tell that they have no effect; a row has none."""
    tools = enumerate(body.tools or ())
    toolsets = [f"tools.{index}" for index, tool in tools if isinstance(tool, McpToolset)]
    brought = ["mcp_servers"] if obj.get("mcp_servers") else []
    for path in (*brought, *toolsets):
        raise invalid(
            f"{path}: MCP servers that requests bring along are not used here", param=path
        )


def raw_draft(obj: JsonObject, body: bytes, entry: ModelEntry, headers: Headers) -> Draft:
    """Read a row of Messages whose body travels as it is. Raises INVALID_REQUEST."""
    check_members(obj, body)
    read = decode_raw(obj, raw_parameters(entry))
    _refuse(obj, "stream")
    raw = RawRequest(path=MESSAGES, body=body, headers=headers)
    return Draft(
        model=read.model,
        ignored=(),
        sources=[],
        build=lambda context, _: raw_request(read, context, raw),
    )


def _chat(obj: JsonObject, rules: Rules) -> Draft:
    body, ignored = decode_chat(obj, rules.unknown)
    _refuse(obj, "stream", "background")
    if body.choices > 1:
        raise invalid("n: a request of a batch has one answer; send it several times", param="n")
    return Draft(
        model=body.model,
        ignored=ignored,
        sources=chat.image_sources(body),
        build=lambda context, images: chat.to_request(body, context, images),
        echo=None if body.shows_reasoning else msgspec.json.encode({"reasoning": False}),
    )


def _responses(obj: JsonObject, rules: Rules) -> Draft:
    body, ignored = responses_wire.decode(obj, rules.unknown, connectors=rules.connectors)
    _refuse(obj, "stream", "background", "previous_response_id")
    # Rows are kept by their batch, none as a response.
    shown = {name: value for name, value in obj.items() if name != "input"} | {"store": False}
    return Draft(
        model=body.model,
        ignored=ignored,
        sources=responses.image_sources(body),
        build=lambda context, images: responses.to_request(body, context, images),
        echo=msgspec.json.encode(hide_credentials(shown)),
    )


def _inline(obj: JsonObject, rules: Rules) -> Draft:
    """Read a row in sference's form: Chat's body, or that of Responses, answered as Chat is."""
    if "input" not in obj or "messages" in obj:
        return _chat(obj, rules)
    draft = _responses(obj, rules)
    hidden = obj.get("include_reasoning") is False
    return draft._replace(echo=msgspec.json.encode({"reasoning": False}) if hidden else None)


def _refuse(obj: JsonObject, *names: str) -> None:
    for name in names:
        if obj.get(name):
            raise invalid(
                f"{name}: a request of a batch cannot have it; leave it out",
                param=name,
                reason="unsupported_parameter",
            )


ENDPOINTS: dict[str, Endpoint] = {
    CHAT: Endpoint("chat", _chat),
    RESPONSES: Endpoint("responses", _responses),
    MESSAGES: Endpoint("anthropic", _messages),
}
"""By path: what a batch may be asked for."""

INLINE = "inline"
"""What the rows of sference's batches are for, in place of a path."""


def find_endpoint(path: str) -> Endpoint:
    """Return the endpoint at a path, or `INLINE`. Raises INVALID_REQUEST for any other."""
    if path == INLINE:
        return Endpoint("chat", _inline)
    if path not in ENDPOINTS:
        raise invalid(f"endpoint: must be one of {', '.join(ENDPOINTS)}", param="endpoint")
    return ENDPOINTS[path]
